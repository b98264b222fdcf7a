//! The verifier on a plan for a million blocks.

use sublet_core::verify::Violation;
use sublet_core::{Constraints, Error};
use sublet_tests::instance::{self, TIGHT_HEIGHT};
use sublet_tests::verify;

/// In a full rectangle every block that is moved or grows by a byte runs into a neighbour, or out of the top.
#[test]
#[ignore = "long: ./ci.sh test runs it"]
fn a_million_blocks_are_judged() {
    let (blocks, mut offsets) = instance::tight(1_000_000, 1);
    let constraints = Constraints { alignment: 1, capacity: Some(TIGHT_HEIGHT) };
    let plan = verify(&blocks, &offsets, &constraints).unwrap();
    assert_eq!((plan.blocks().len(), plan.peak(), plan.max_load()), (1_000_000, TIGHT_HEIGHT, TIGHT_HEIGHT));
    for moved in [0u32, 1, 499_999, 999_999] {
        let i = moved as usize;
        offsets[i] += 1;
        let refused = verify(&blocks, &offsets, &constraints).unwrap_err();
        offsets[i] -= 1;
        match refused {
            Error::Invalid(Violation::Overlap { first, second, step }) => {
                assert!(first == moved || second == moved);
                assert!([first, second].iter().all(|&b| {
                    let b = blocks[b as usize];
                    b.start <= step && step < b.end
                }));
            }
            Error::Invalid(Violation::OverCapacity { block, end, .. }) => {
                assert_eq!((block, end), (moved, TIGHT_HEIGHT + 1));
            }
            other => panic!("{other}"),
        }
    }
}
