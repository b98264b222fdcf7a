//! The measured times of an iteration on a device, beside those that the simulation of its schedule predicts.
//!
//! A schedule is a rewritten trace, with times: the recorded trace, to which swaps and recomputations were added.

use sublet_core::simulate::{Device, Run, Timing};
use sublet_core::trace::{Event, Op, Row};

/// Which way a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// A copy from the device to the host.
    Out,
    /// A copy from the host to the device.
    In,
}

/// A copy that was timed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CopyTime {
    /// The index of the copy's row in the rewritten trace.
    pub row: u32,
    /// Which way the copy goes.
    pub direction: Direction,
    /// How many bytes are copied.
    pub bytes: u64,
    /// How long the copy took on the device, in ns.
    pub ns: f64,
    /// How long the copy takes in the simulation, in ns.
    pub simulated_ns: f64,
}

/// How long the compute stream waited for copies before one launch, on the device and in the simulation. A launch is
/// one run of an operator, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stall {
    /// The index in the rewritten trace of the row from which the launch comes: its first read or write of a block.
    pub row: u32,
    /// The operator of the launch before which compute waited.
    pub op: Op,
    /// How long compute waited before the launch on the device, in ns.
    pub ns: f64,
    /// How long compute waits between the previous launch and this one in the simulation, in ns. This includes waits
    /// where a block is freed: there the simulation waits until the block's copies have ended.
    pub simulated_ns: f64,
}

/// The times of one iteration: as measured on the device, and as simulated.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Measured {
    /// The time from the begin of the iteration until all streams were done, in ns.
    pub time_ns: f64,
    /// How long the iteration takes in the simulation, in ns.
    pub simulated_ns: f64,
    /// The times of the schedule's copies, in the order of the schedule; copies between iterations are not among them.
    pub copies: Vec<CopyTime>,
    /// The waits of compute for copies: an entry for each launch before which the program has the compute stream wait
    /// for copies, or the simulation predicts such a wait. The measured wait may be 0 ns: the copies may have been done
    /// before.
    pub stalls: Vec<Stall>,
}

impl Measured {
    /// How long compute waited for copies on the device, in ns: the sum over all launches in `stalls`.
    #[must_use]
    pub fn stalled_ns(&self) -> f64 {
        self.stalls.iter().fold(0.0, |sum, stall| sum + stall.ns)
    }

    /// How long compute waits for copies in the simulation, in ns: the sum over all launches in `stalls`.
    #[must_use]
    pub fn simulated_stalled_ns(&self) -> f64 {
        self.stalls.iter().fold(0.0, |sum, stall| sum + stall.simulated_ns)
    }

    /// Returns the device `like` with its copies as fast as they were measured: a bandwidth for each direction, and one
    /// latency for both, are fitted to the measured times. The fit is by least squares of relative errors. If all
    /// copies out have one size, and all copies in too, the latency cannot be told from the bandwidths, and is 0. It is
    /// 0 too if the fit would give a negative latency or bandwidth. Copies of 0 bytes, or measured at 0 ns, do not
    /// count. `None` if no copy was measured in one of the directions, or if the figures make no valid device.
    #[must_use]
    pub fn device(&self, like: &Device) -> Option<Device> {
        let [latency, out, back] = least_squares(&self.copies)?;
        let device = Device {
            out_bandwidth: 1e9 / out,
            in_bandwidth: 1e9 / back,
            out_latency: latency,
            in_latency: latency,
            ..*like
        };
        device.is_sound().then_some(device)
    }
}

/// Writes the speed of a device's copies, and the host's capacity if it is limited, as the text of a file, which
/// `sublet fit --device FILE` reads. The file has one latency: the mean of those of the two directions.
///
/// ```
/// use sublet_core::simulate::Device;
/// let text = sublet_cuda::measure::device_file(&Device::symmetric(12e9));
/// assert_eq!(text, "out_bytes_per_s,in_bytes_per_s,latency_ns\n12000000000,12000000000,10000\n");
/// ```
#[must_use]
pub fn device_file(device: &Device) -> String {
    let Device { out_bandwidth, in_bandwidth, out_latency, in_latency, host_capacity, .. } = *device;
    let latency = f64::midpoint(out_latency, in_latency);
    let (name, bytes) = host_capacity.map_or_else(Default::default, |bytes| (",host_bytes", format!(",{bytes}")));
    format!(
        "out_bytes_per_s,in_bytes_per_s,latency_ns{name}\n{out_bandwidth:.0},{in_bandwidth:.0},{latency:.0}{bytes}\n"
    )
}

/// Latency in ns, or 0 if it cannot be fitted; ns per byte out; ns per byte in.
#[expect(clippy::cast_precision_loss, reason = "times")]
fn least_squares(copies: &[CopyTime]) -> Option<[f64; 3]> {
    // Each copy is an equation: latency + bytes · ns per byte = ns, divided by its ns.
    let row = |copy: &CopyTime| {
        let bytes = copy.bytes as f64;
        let (out, back) = if copy.direction == Direction::Out { (bytes, 0.0) } else { (0.0, bytes) };
        [1.0, out, back].map(|x| x / copy.ns)
    };
    let timed = || copies.iter().filter(|copy| copy.ns > 0.0 && copy.bytes > 0);
    let rows: Vec<[f64; 3]> = timed().map(row).collect();
    let without_latency = || {
        let per_byte = |i: usize| {
            let (sum, squares) = rows.iter().fold((0.0, 0.0), |(s, q), r| (s + r[i], q + r[i] * r[i]));
            (squares > 0.0).then(|| sum / squares)
        };
        Some([0.0, per_byte(1)?, per_byte(2)?])
    };
    let [_, out, back] = without_latency()?;
    // Bytes in units of the slopes without latency, so that the equations have similar sizes.
    let scale = [timed().map(|copy| copy.ns).fold(f64::INFINITY, f64::min), out, back];
    let mut normal = [[0.0; 4]; 3];
    for r in &rows {
        for i in 0..3 {
            for j in 0..3 {
                normal[i][j] += r[i] * scale[i] * r[j] * scale[j];
            }
            normal[i][3] += r[i] * scale[i];
        }
    }
    let solved = solve(normal).map(|x| [x[0] * scale[0], x[1] * scale[1], x[2] * scale[2]]);
    solved.filter(|x| x[0] >= 0.0 && x[1] > 0.0 && x[2] > 0.0).or_else(without_latency)
}

/// Gauss's elimination. A row is three coefficients and the right side.
fn solve(mut a: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    for i in 0..3 {
        let pivot = (i..3).max_by(|&p, &q| a[p][i].abs().total_cmp(&a[q][i].abs()))?;
        a.swap(i, pivot);
        if a[i][i].abs() < 1e-9 {
            return None;
        }
        for k in 0..3 {
            if k != i {
                let (factor, row) = (a[k][i] / a[i][i], a[i]);
                for (x, y) in a[k].iter_mut().zip(row).skip(i) {
                    *x -= factor * y;
                }
            }
        }
    }
    Some(std::array::from_fn(|i| a[i][3] / a[i][i]))
}

#[derive(Clone, Debug)]
pub(crate) struct Simulated {
    pub(crate) run: Run,
    /// By step: how long compute waits before a launch, or a copy takes; 0 between iterations.
    pub(crate) ns: Vec<f64>,
}

impl Simulated {
    /// A step is its row, beyond `rows` between iterations, and whether it is a launch.
    pub(crate) fn new(run: &Run, rows: &[Row], timings: &[Timing], steps: impl Iterator<Item = (u32, bool)>) -> Self {
        // The first row that no launch has counted yet.
        let mut counted = 0;
        let ns = steps
            .map(|(row, is_launch)| {
                let row = row as usize;
                if !is_launch {
                    return timings.get(row).map_or(0.0, |t| t.end - t.begin);
                }
                let since = rows.iter().zip(timings).take(row + 1).skip(counted);
                counted = row + 1;
                let still = |(r, t): (&Row, &Timing)| match r.event {
                    Event::SwapOut | Event::SwapIn => 0.0,
                    _ => t.begin - t.reached,
                };
                since.map(still).sum()
            })
            .collect();
        Self { run: *run, ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(direction: Direction, bytes: u64, ns: f64) -> CopyTime {
        CopyTime { row: 0, direction, bytes, ns, simulated_ns: 0.0 }
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-6 * b
    }

    #[test]
    fn links_are_found_from_copies() {
        let like = Device { host_capacity: Some(7), ..Device::symmetric(1.0) };
        let of = |sizes: &[u32]| {
            let out = sizes.iter().map(|&b| copy(Direction::Out, b.into(), 8_000.0 + f64::from(b) * 0.1));
            let back = sizes.iter().map(|&b| copy(Direction::In, 2 * u64::from(b), 8_000.0 + f64::from(b) * 0.4));
            Measured { copies: out.chain(back).collect(), ..Measured::default() }
        };
        let device = of(&[1 << 12, 1 << 20, 3 << 20, 1 << 26]).device(&like).unwrap();
        assert!(near(device.out_bandwidth, 1e10) && near(device.in_bandwidth, 5e9), "{device:?}");
        assert!(near(device.out_latency, 8_000.0) && device.host_capacity == Some(7), "{device:?}");
        // A copy of nothing, or one too quick for the clock, tells nothing.
        let mut with_none = of(&[1 << 12, 1 << 20, 3 << 20, 1 << 26]);
        with_none.copies.extend([copy(Direction::Out, 1 << 12, 0.0), copy(Direction::In, 0, 5.0)]);
        assert_eq!(with_none.device(&like), Some(device));
        // Copies of one size each way tell three unknowns by two numbers.
        let device = of(&[1 << 20]).device(&like).unwrap();
        assert!(device.out_latency == 0.0 && near(device.out_ns(1 << 20), 8_000.0 + f64::from(1 << 20) * 0.1));
        let mut one_way = of(&[1 << 20]);
        one_way.copies.truncate(1);
        assert_eq!(one_way.device(&like), None);
    }
}
