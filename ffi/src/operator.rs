//! The properties of operators that planning needs and that the rows of a trace do not tell: whether an operator may be
//! recomputed, may write over its input, may run in another order, or is a ReLU.

use sublet_core::trace::{Kind, Operator};

use crate::arguments::plain;
use crate::error::Failure;
use crate::status::sublet_status as S;
use crate::workspace::Room;

/// The flag of an operator whose kernel may write its first output over its first input. The first input is the first
/// block that the operator reads in the trace, the first output the first block that it writes. Blocks that are
/// allocated or freed between the operator's accesses are skipped.
pub const SUBLET_OPERATOR_IN_PLACE: u32 = 1;

/// The flag of an operator that must not be recomputed, for example because it would give another result, as a dropout
/// does.
///
/// An operator may both read and write a persistent block, such as a weight. The first run updates the block. A
/// recomputation leaves the block out, so that it is not updated again. So an operator whose output depends on such a
/// block needs this flag: for example the gradient of a layer, if it also updates the weights that it reads. An
/// operator whose output does not depend on the block may be recomputed: for example a batch norm, which updates its
/// running statistics in the block, but does not use them for its output.
pub const SUBLET_OPERATOR_ONCE: u32 = 2;

/// The flag of an operator that may run as soon as the values that it reads are there. Operators without the flag keep
/// their order among themselves. Leave the flag out where the order matters: for operators that draw random numbers,
/// and for collectives (operators in which several devices take part).
pub const SUBLET_OPERATOR_UNORDERED: u32 = 4;

/// What an operator computes, as far as planning needs to know.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sublet_operator_kind {
    /// Any computation that is none of the other kinds.
    Other = 0,
    /// A ReLU. For its gradient, a bit mask can be kept in place of what the ReLU reads or writes.
    Relu = 1,
    /// The gradient of a ReLU. It can read a bit mask in place of what the ReLU read or wrote.
    ReluBackward = 2,
}

/// The properties of one operator that the rows of a trace do not tell. If all fields are 0, the operator may be
/// recomputed, does not work in place, keeps its place in the order, and its elements have 4 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct sublet_operator {
    /// The flags of the operator, SUBLET_OPERATOR_IN_PLACE, SUBLET_OPERATOR_ONCE and SUBLET_OPERATOR_UNORDERED, added
    /// up; 0 is none.
    pub flags: u32,
    /// A sublet_operator_kind: what the operator computes.
    pub kind: u32,
    /// The bytes of one element of what the operator reads and writes: 1, 2, 4 or 8; 0 is 4. It determines the length
    /// of a ReLU's mask: one bit for each element, where an element of 8 bytes counts as two of 4.
    pub element: u32,
}

plain!(sublet_operator);

const KINDS: [(sublet_operator_kind, Kind); 3] = [
    (sublet_operator_kind::Other, Kind::Other),
    (sublet_operator_kind::Relu, Kind::Relu),
    (sublet_operator_kind::ReluBackward, Kind::ReluBackward),
];

pub(crate) fn operators<'a>(room: &mut Room<'a>, given: &[sublet_operator]) -> Result<&'a mut [Operator], Failure> {
    room.slice(given.len(), |i| {
        let &sublet_operator { flags, kind: number, element } = given.get(i).ok_or(Failure::of(S::Unnamed))?;
        let refuse =
            |got: u32| Failure::new(S::OperatorUnknownValue, u32::try_from(i).unwrap_or(u32::MAX), 0, got.into());
        if flags & !(SUBLET_OPERATOR_IN_PLACE | SUBLET_OPERATOR_ONCE | SUBLET_OPERATOR_UNORDERED) != 0 {
            return Err(refuse(flags));
        }
        let kind = KINDS.iter().find(|&&(k, _)| k as u32 == number).ok_or(refuse(number))?.1;
        let (in_place, rerun) = (flags & SUBLET_OPERATOR_IN_PLACE != 0, flags & SUBLET_OPERATOR_ONCE == 0);
        let ordered = flags & SUBLET_OPERATOR_UNORDERED == 0;
        let element = match element {
            0 => 4,
            1 | 2 | 4 | 8 => u8::try_from(element).map_err(|_| refuse(element))?,
            _ => return Err(refuse(element)),
        };
        Ok(Operator { in_place, rerun, ordered, kind, element })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_told_is_the_default() {
        let mut memory = [u64::MAX; 8];
        let mut room = Room::new(&mut memory);
        let told = operators(&mut room, &[sublet_operator { flags: 0, kind: 0, element: 0 }]).unwrap();
        assert_eq!(told, [Operator::default()]);
    }
}
