(* The verifier's sweep, of core/src/verify/mod.rs: what it accepts has no two blocks that are alive together and share
   an address. README.md says what is modelled and what is not. *)

From Coq Require Import List Arith Lia Sorted.
Import ListNotations.

(* A block with its offset; it is alive in the steps [start, finish) and has the addresses [offset, offset + size). *)
Record block := { start : nat; finish : nat; size : nat; offset : nat }.

Definition top (b : block) := offset b + size b.

Definition alive_together (a b : block) := start a < finish b /\ start b < finish a.

Definition apart (a b : block) := top a <= offset b \/ top b <= offset a.

(* The live blocks are a list in the order of their offsets. [insert] puts a block where it belongs, and judges it by its two
   neighbours alone, as the sweep does: none if it overlaps one of them. *)
Fixpoint insert (b : block) (live : list block) : option (list block) :=
  match live with
  | [] => Some [b]
  | c :: above =>
      if offset b <? offset c then
        if top b <=? offset c then Some (b :: c :: above) else None
      else
        match above with
        | d :: _ =>
            if offset b <? offset d
            then if top c <=? offset b then option_map (cons c) (insert b above) else None
            else option_map (cons c) (insert b above)
        | [] => if top c <=? offset b then Some [c; b] else None
        end
  end.

(* What has ended by the step at which a block begins is taken out. *)
Definition drop_ended (step : nat) (live : list block) := filter (fun c => step <? finish c) live.

(* The blocks come in the order of their starts; false at the first overlap. *)
Fixpoint sweep (live blocks : list block) : bool :=
  match blocks with
  | [] => true
  | b :: later =>
      match insert b (drop_ended (start b) live) with
      | Some now => sweep now later
      | None => false
      end
  end.

Definition accepted (blocks : list block) := sweep [] blocks = true.

(* The plans of the example of [verify], which it accepts and refuses. *)
Definition example (last : nat) :=
  [ {| start := 0; finish := 2; size := 8; offset := 0 |};
    {| start := 1; finish := 3; size := 8; offset := 8 |};
    {| start := 2; finish := 4; size := 8; offset := last |} ].

Example accepts : sweep [] (example 0) = true. Proof. reflexivity. Qed.
Example refuses : sweep [] (example 4) = false. Proof. reflexivity. Qed.

(* Each live block lies above all those before it. *)
Definition stacked := StronglySorted (fun a b => top a <= offset b).

Lemma filter_stacked : forall p live, stacked live -> stacked (filter p live).
Proof.
  intros p live H. induction H as [| c above H IH All]; simpl.
  - constructor.
  - destruct (p c); [| exact IH].
    constructor; [exact IH |].
    rewrite Forall_forall in *. intros d In_d. apply filter_In in In_d. apply All, In_d.
Qed.

(* Judged by two neighbours, apart from all: what is inserted stands in the stack, and nothing else has changed. *)
Lemma insert_has :
  forall b live now, insert b live = Some now -> forall c, In c now <-> c = b \/ In c live.
Proof.
  intros b live. induction live as [| c above IH]; simpl; intros now E x.
  - injection E as <-. simpl. intuition congruence.
  - destruct (offset b <? offset c).
    + destruct (top b <=? offset c); [injection E as <- | discriminate]. simpl. intuition congruence.
    + assert (Deeper : forall rest, insert b above = Some rest -> now = c :: rest ->
                       (In x now <-> x = b \/ c = x \/ In x above)).
      { intros rest R ->. simpl. rewrite (IH rest R x). intuition congruence. }
      destruct above as [| d more].
      * destruct (top c <=? offset b); [injection E as <- | discriminate]. simpl. intuition congruence.
      * destruct (insert b (d :: more)) as [rest |];
          destruct (offset b <? offset d); try destruct (top c <=? offset b); simpl in E; try discriminate;
          injection E as <-; apply (Deeper rest eq_refl eq_refl).
Qed.

(* Judged by two neighbours, apart from all. *)
Lemma insert_stacked :
  forall b live now,
    stacked live -> insert b live = Some now -> stacked now /\ Forall (apart b) live.
Proof.
  intros b live. induction live as [| c above IH]; simpl; intros now S E.
  - injection E as <-. split; repeat constructor.
  - inversion S as [| ? ? S' All]; subst.
    destruct (offset b <? offset c) eqn:Below.
    + destruct (top b <=? offset c) eqn:Fits; [injection E as <- | discriminate].
      apply Nat.leb_le in Fits.
      assert (Above : Forall (fun d => top b <= offset d) (c :: above)).
      { constructor; [exact Fits |]. rewrite Forall_forall in *. intros d In_d. apply All in In_d.
        unfold top in *. lia. }
      split; [constructor; assumption |].
      rewrite Forall_forall in *. intros d In_d. left. apply Above, In_d.
    + apply Nat.ltb_ge in Below.
      (* Wherever b goes, it is not below the end of c. *)
      assert (Goes : forall rest, insert b above = Some rest -> now = c :: rest -> top c <= offset b ->
                     stacked now /\ Forall (apart b) (c :: above)).
      { intros rest R -> Fits. destruct (IH rest S' R) as [S'' Apart]. split.
        - constructor; [exact S'' |]. rewrite Forall_forall in *. intros d In_d.
          apply (insert_has _ _ _ R) in In_d. destruct In_d as [-> | In_d]; [exact Fits | apply All, In_d].
        - constructor; [right; exact Fits | exact Apart]. }
      destruct above as [| d more].
      * destruct (top c <=? offset b) eqn:Fits; [injection E as <- | discriminate].
        apply Nat.leb_le in Fits. apply (Goes [b]); trivial.
      * destruct (insert b (d :: more)) as [rest |] eqn:R.
        2: { destruct (offset b <? offset d); try destruct (top c <=? offset b); discriminate. }
        destruct (offset b <? offset d) eqn:Next.
        -- destruct (top c <=? offset b) eqn:Fits; [| discriminate].
           apply Nat.leb_le in Fits. injection E as <-. apply (Goes rest); trivial.
        -- injection E as <-. apply Nat.ltb_ge in Next. apply (Goes rest); trivial.
           inversion All; subst. lia.
Qed.

(* What is live is stacked and has begun; so whatever begins later is judged against all that it meets. *)
Lemma sweep_apart :
  forall blocks live,
    stacked live ->
    StronglySorted (fun a b => start a <= start b) blocks ->
    sweep live blocks = true ->
    ForallOrdPairs (fun a b => alive_together a b -> apart a b) blocks /\
    Forall (fun c => Forall (fun b => alive_together c b -> apart c b) blocks) live.
Proof.
  induction blocks as [| b later IH]; simpl; intros live S Sorted E.
  - split; [constructor | rewrite Forall_forall; constructor].
  - inversion Sorted as [| ? ? Sorted' After]; subst.
    destruct (insert b (drop_ended (start b) live)) as [now |] eqn:I; [| discriminate].
    destruct (insert_stacked _ _ _ (filter_stacked _ _ S) I) as [S' Apart].
    destruct (IH now S' Sorted' E) as [Pairs Live].
    rewrite Forall_forall in *.
    split.
    + constructor; [| exact Pairs].
      apply (Live b). apply (insert_has _ _ _ I). now left.
    + intros c In_c. rewrite Forall_forall. intros x [<- | In_x] Together.
      * assert (In c (drop_ended (start b) live)) as Still.
        { apply filter_In. split; [exact In_c |]. apply Nat.ltb_lt, Together. }
        destruct (Apart c Still); [right | left]; assumption.
      * assert (In c (drop_ended (start b) live)) as Still.
        { apply filter_In. split; [exact In_c |]. apply Nat.ltb_lt.
          apply After in In_x. destruct Together. lia. }
        assert (In c now) as Now by (apply (insert_has _ _ _ I); now right).
        specialize (Live c Now). rewrite Forall_forall in Live. apply Live; assumption.
Qed.

(* The theorem: no two blocks of a plan that is accepted are alive together and share an address. *)
Theorem accepted_plans_are_valid :
  forall blocks,
    StronglySorted (fun a b => start a <= start b) blocks ->
    accepted blocks ->
    ForallOrdPairs (fun a b => alive_together a b -> apart a b) blocks.
Proof.
  intros blocks Sorted E. apply (sweep_apart blocks [] (SSorted_nil _) Sorted E).
Qed.

Print Assumptions accepted_plans_are_valid.
