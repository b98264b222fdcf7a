//! The command line of sublet.
mod problem;

fn main() {
    let _ = problem::Problem::default();
}
