//! Scratch memory that the caller lends.

use crate::Error;
use crate::error::Buffer;
use crate::id::Id;
use crate::table::{Record, Records, Table};

/// The scratch memory that the caller lends to one call: a slice of 64-bit words and a slice of 32-bit indices.
///
/// The contents of the slices before and after the call have no meaning. Beside every function that takes a workspace
/// stands another, whose name is or ends in `workspace`: it returns how long the slices must be; longer ones will do.
#[derive(Debug)]
pub struct Workspace<'a> {
    words: &'a mut [u64],
    indices: &'a mut [u32],
}

/// How long the two slices of a [`Workspace`] must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkspaceLen {
    /// How many elements the workspace's slice of 64-bit words must have.
    pub words: usize,
    /// How many elements the workspace's slice of 32-bit indices must have.
    pub indices: usize,
}

impl WorkspaceLen {
    /// The larger of the two lengths, for words and indices each: enough for two calls that run one after the other.
    ///
    /// ```
    /// use sublet_core::WorkspaceLen;
    /// let a = WorkspaceLen { words: 3, indices: 1 };
    /// let b = WorkspaceLen { words: 2, indices: 5 };
    /// assert_eq!(a.max(b), WorkspaceLen { words: 3, indices: 5 });
    /// ```
    #[must_use]
    pub const fn max(self, other: Self) -> Self {
        Self {
            words: if self.words > other.words { self.words } else { other.words },
            indices: if self.indices > other.indices { self.indices } else { other.indices },
        }
    }

    pub(crate) const NONE: Self = Self { words: 0, indices: 0 };

    pub(crate) const fn and(self, other: Self) -> Self {
        Self { words: self.words + other.words, indices: self.indices + other.indices }
    }

    pub(crate) const fn times(self, n: usize) -> Self {
        Self { words: self.words * n, indices: self.indices * n }
    }
}

pub(crate) trait Cell: Copy + Default {
    const LEN: WorkspaceLen;
    fn lend<'a>(n: usize, scratch: &mut Workspace<'a>) -> &'a mut [Self];
}

impl Cell for u32 {
    const LEN: WorkspaceLen = WorkspaceLen { words: 0, indices: 1 };
    fn lend<'a>(n: usize, scratch: &mut Workspace<'a>) -> &'a mut [Self] {
        scratch.indices(n).into_slice()
    }
}

impl Cell for u64 {
    const LEN: WorkspaceLen = WorkspaceLen { words: 1, indices: 0 };
    fn lend<'a>(n: usize, scratch: &mut Workspace<'a>) -> &'a mut [Self] {
        scratch.words(n).into_slice()
    }
}

impl<const K: usize> Cell for [u32; K]
where
    [u32; K]: Default,
{
    const LEN: WorkspaceLen = WorkspaceLen { words: 0, indices: K };
    fn lend<'a>(n: usize, scratch: &mut Workspace<'a>) -> &'a mut [Self] {
        scratch.index_records(n).into_slice()
    }
}

impl<const K: usize> Cell for [u64; K]
where
    [u64; K]: Default,
{
    const LEN: WorkspaceLen = WorkspaceLen { words: K, indices: 0 };
    fn lend<'a>(n: usize, scratch: &mut Workspace<'a>) -> &'a mut [Self] {
        scratch.word_records(n).into_slice()
    }
}

impl<'a, R: Record<Kept: Cell>, I: Id> Records<'a, R, I> {
    pub(crate) const LEN: WorkspaceLen = R::Kept::LEN;

    pub(crate) fn lend(n: usize, scratch: &mut Workspace<'a>) -> Self {
        Self::new(Table::new(R::Kept::lend(n, scratch)))
    }
}

/// Declares a structure whose tables and lists lie in memory that the caller lends, a [`Workspace`]. From one list of
/// fields it makes the structure, the function that computes the length of that workspace, and the constructor, so that
/// the three always agree.
///
/// ```ignore
/// workspace! {
///     /// The documentation of the structure.
///     pub(super) struct Example<'a>(blocks: usize; size: u64) {
///         tables {
///             /// A table of as many cells as stand in the brackets, all 0 at first.
///             owner: u32[blocks + 1],
///             /// A table that is indexed by an id type. Records and parts may name an id type too.
///             size[BlockId]: u64[blocks],
///         }
///         records {
///             /// A table of values that are stored in another form, such as a float as its bits.
///             time: f64[blocks],
///         }
///         lists {
///             /// A list with room for as many elements as stand in the brackets, empty at first.
///             waiting: u32[blocks],
///         }
///         parts {
///             /// Another structure declared by this macro. The brackets hold the arguments of its constructor.
///             queue: Queue(blocks; size),
///         }
///         state {
///             /// A field that is stored in the structure itself, and its first value.
///             size: u64 = size,
///         }
///     }
/// }
/// ```
///
/// A structure that is generic over an id type `I` is declared as `Example<'a, I>`.
///
/// The round brackets hold the arguments of the constructor: before the semicolon the numbers from which the lengths of
/// the tables follow, after it all others. With `then begin` after the brackets, the constructor calls `begin()` on the
/// new value at the end. The macro makes two functions, with the visibility of the structure:
/// - `const fn workspace(blocks: usize) -> WorkspaceLen`;
/// - the constructor, `fn lend(blocks: usize, size: u64, scratch: &mut Workspace<'a>) -> Self`.
macro_rules! workspace {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident<'a $(, $id:ident)?>($($dim:ident),* $(; $($given:ident: $given_type:ty),+)?)
        $(then $begin:ident)? {
            $(tables { $($(#[$table_meta:meta])* $table_vis:vis $table:ident $([$by:ty])?: $cell:ty[$n:expr],)* })?
            $(records { $(
                $(#[$record_meta:meta])* $record_vis:vis $records:ident $([$record_by:ty])?: $record:ty[$m:expr],
            )* })?
            $(lists { $($(#[$list_meta:meta])* $list_vis:vis $list:ident: $item:ty[$most:expr],)* })?
            $(parts { $(
                $(#[$part_meta:meta])* $part_vis:vis $part:ident $([$part_by:ty])?:
                $part_type:ident($($of:expr),* $(; $($with:expr),+)?),
            )* })?
            $(state { $($(#[$state_meta:meta])* $state_vis:vis $state:ident: $state_type:ty = $first:expr,)* })?
        }
    ) => {
        $(#[$meta])*
        $vis struct $name<'a $(, $id: $crate::id::Id)?> {
            $($($(#[$table_meta])* $table_vis $table: $crate::table::Table<'a, $cell $(, $by)?>,)*)?
            $($($(#[$record_meta])* $record_vis $records: $crate::table::Records<'a, $record $(, $record_by)?>,)*)?
            $($($(#[$list_meta])* $list_vis $list: $crate::list::List<'a, $item>,)*)?
            $($($(#[$part_meta])* $part_vis $part: $part_type<'a $(, $part_by)?>,)*)?
            $($($(#[$state_meta])* $state_vis $state: $state_type,)*)?
        }

        impl<'a $(, $id: $crate::id::Id)?> $name<'a $(, $id)?> {
            $vis const fn workspace($($dim: usize),*) -> $crate::WorkspaceLen {
                $crate::WorkspaceLen::NONE
                    $($(.and(<$cell as $crate::workspace::Cell>::LEN.times($n)))*)?
                    $($(.and($crate::table::Records::<'a, $record $(, $record_by)?>::LEN.times($m)))*)?
                    $($(.and($crate::list::List::<'a, $item>::LEN.times($most)))*)?
                    $($(.and($part_type::<'a $(, $part_by)?>::workspace($($of),*)))*)?
            }

            $vis fn lend($($dim: usize,)* $($($given: $given_type,)+)? scratch: &mut $crate::Workspace<'a>) -> Self {
                #[allow(unused_mut, reason = "not every structure has something to begin with")]
                let mut lent = Self {
                    $($($table: $crate::table::Table::new(<$cell as $crate::workspace::Cell>::lend($n, scratch)),)*)?
                    $($($records: $crate::table::Records::lend($m, scratch),)*)?
                    $($($list: $crate::list::List::lend($most, scratch),)*)?
                    $($($part: $part_type::lend($($of,)* $($($with,)+)? scratch),)*)?
                    $($($state: $first,)*)?
                };
                $(lent.$begin();)?
                lent
            }
        }
    };
}
pub(crate) use workspace;

impl<'a> Workspace<'a> {
    /// A workspace that consists of the slices `words` and `indices`. What they contain does not matter.
    ///
    /// ```
    /// use sublet_core::{verify, Block, Constraints, Workspace};
    /// let blocks = [Block::new(0, 2, 8), Block::new(1, 3, 8)];
    /// let len = verify::workspace(blocks.len());
    /// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
    /// let plan = verify::verify(&blocks, &[0, 8], &Constraints::NONE, Workspace::new(&mut words, &mut indices))?;
    /// assert_eq!(plan.peak(), 16);
    /// # Ok::<(), sublet_core::Error>(())
    /// ```
    #[must_use]
    pub const fn new(words: &'a mut [u64], indices: &'a mut [u32]) -> Self {
        Self { words, indices }
    }

    /// Lends the workspace to one call, for a shorter lifetime, so that it can be lent again afterwards.
    #[must_use]
    pub const fn reborrow(&mut self) -> Workspace<'_> {
        Workspace { words: self.words, indices: self.indices }
    }

    pub(crate) fn check(&self, len: WorkspaceLen) -> Result<(), Error> {
        if self.words.len() < len.words {
            return Err(Error::BufferTooSmall { buffer: Buffer::Words, needed: len.words, got: self.words.len() });
        }
        if self.indices.len() < len.indices {
            return Err(Error::BufferTooSmall {
                buffer: Buffer::Indices,
                needed: len.indices,
                got: self.indices.len(),
            });
        }
        Ok(())
    }

    /// Where a slice is too short, it is empty in both afterwards; debug builds fail an assertion.
    pub(crate) fn split(&mut self, len: WorkspaceLen) -> Workspace<'a> {
        Workspace { words: cut(&mut self.words, len.words), indices: cut(&mut self.indices, len.indices) }
    }

    pub(crate) fn words(&mut self, n: usize) -> Table<'a, u64> {
        Table::new(take(&mut self.words, n))
    }

    pub(crate) fn index_records<const K: usize>(&mut self, n: usize) -> Table<'a, [u32; K]>
    where
        [u32; K]: Default,
    {
        Table::new(take(&mut self.indices, K * n).as_chunks_mut().0)
    }

    pub(crate) fn word_records<const K: usize>(&mut self, n: usize) -> Table<'a, [u64; K]>
    where
        [u64; K]: Default,
    {
        Table::new(take(&mut self.words, n * K).as_chunks_mut().0)
    }

    /// The words keep old contents: the caller must write each record before it reads it.
    pub(crate) fn stale_word_records<const K: usize>(&mut self, n: usize) -> Table<'a, [u64; K]>
    where
        [u64; K]: Default,
    {
        Table::new(cut(&mut self.words, n * K).as_chunks_mut().0)
    }

    /// The words keep old contents: the caller must write each word before it reads it.
    pub(crate) fn stale_words(&mut self, n: usize) -> Table<'a, u64> {
        Table::new(cut(&mut self.words, n))
    }

    /// The indices keep old contents: the caller must write each index before it reads it.
    pub(crate) fn stale_indices(&mut self, n: usize) -> Table<'a, u32> {
        Table::new(cut(&mut self.indices, n))
    }

    pub(crate) fn indices(&mut self, n: usize) -> Table<'a, u32> {
        Table::new(take(&mut self.indices, n))
    }
}

#[expect(clippy::mut_mut, reason = "the rest is handed back")]
fn take<'a, T: Default + Copy>(rest: &mut &'a mut [T], n: usize) -> &'a mut [T] {
    let front = cut(rest, n);
    front.fill(T::default());
    front
}

/// If `rest` has fewer than `n`, both it and the result are empty afterwards; debug builds fail an assertion.
#[expect(clippy::mut_mut, reason = "the rest is handed back")]
fn cut<'a, T>(rest: &mut &'a mut [T], n: usize) -> &'a mut [T] {
    debug_assert!(n <= rest.len());
    let (front, back) = core::mem::take(rest).split_at_mut_checked(n).unwrap_or_default();
    *rest = back;
    front
}
