//! Converts version 1 numbers and special values to those of version 2.

use crate::error::Error;

/// Converts CPU shares to `cpu.weight`: 2 to 1, the default 1024 to the default 100, and 262144 to 10000. runc,
/// crun and Kubernetes use the same curve. KEP-2254 had a straight line, which mapped the default to 39.
pub(crate) fn cpu_weight(shares: u64) -> u64 {
    if shares <= 2 {
        return 1;
    }
    if shares >= 262_144 {
        return 10_000;
    }
    // Exact below 2^53, and shares are below 2^18 here.
    #[expect(clippy::cast_precision_loss, reason = "below 2^18")]
    let logarithm = (shares as f64).log2();
    let exponent = (logarithm * logarithm + 125.0 * logarithm) / 612.0 - 7.0 / 34.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and 10000")]
    let weight = 10_f64.powf(exponent).ceil() as u64;
    weight
}

/// Converts a weight from 10 to 1000 to `io.weight`.
pub(crate) fn io_weight(weight: u16) -> u64 {
    1 + u64::from(weight.max(10) - 10) * 9999 / 990
}

/// Returns the value for `memory.swap.max`, if it is to be written; -1 means unlimited. The kernel limits swap
/// alone; the configuration limits the sum of memory and swap.
pub(crate) fn swap_alone(limit: Option<i64>, swap: Option<i64>) -> Result<Option<i64>, Error> {
    const FIELD: &str = "linux.resources.memory.swap";
    let (limit, swap) = (limit.unwrap_or(0), swap.unwrap_or(0));
    match (limit, swap) {
        // In version 1, unlimited memory implied unlimited swap.
        (-1, 0) => Ok(Some(-1)),
        (_, 0) => Ok(None),
        (_, -1) | (-1, _) => Ok(Some(swap)),
        (0, _) => Err(Error::invalid(FIELD, "needs linux.resources.memory.limit too")),
        (limit, _) if limit < 0 => {
            Err(Error::invalid("linux.resources.memory.limit", format!("{limit} is out of range")))
        }
        (limit, swap) if swap < limit => {
            Err(Error::invalid(FIELD, "memory+swap limit should be >= memory limit"))
        }
        (limit, swap) => Ok(Some(swap - limit)),
    }
}

/// Returns the value for `pids.max`. 0 becomes 1, as in systemd: the container's own process is in its cgroup
/// before the limit takes effect.
pub(crate) fn pids_max(limit: i64) -> String {
    match limit {
        0 => "1".to_owned(),
        1.. => limit.to_string(),
        _ => "max".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_become_weights() {
        let table =
            [(2, 1), (1, 1), (1024, 100), (262_144, 10_000), (u64::MAX, 10_000), (512, 59), (100, 17)];
        for (shares, weight) in table {
            assert_eq!(cpu_weight(shares), weight, "{shares}");
        }
        // Larger shares never give a smaller weight.
        assert!((3..262_144).step_by(7).all(|shares| cpu_weight(shares) <= cpu_weight(shares + 1)));
    }

    #[test]
    fn io_weights_cover_the_whole_range() {
        assert_eq!([10, 500, 1000].map(io_weight), [1, 4950, 10_000]);
    }

    #[test]
    fn swap_limit_is_the_amount_beyond_memory() {
        let cases = [
            (Some(100), Some(300), Ok(Some(200))),
            (Some(100), Some(100), Ok(Some(0))),
            (Some(100), Some(-1), Ok(Some(-1))),
            (Some(-1), None, Ok(Some(-1))),
            (Some(-1), Some(0), Ok(Some(-1))),
            (Some(-1), Some(7), Ok(Some(7))),
            (Some(100), None, Ok(None)),
            (None, Some(-1), Ok(Some(-1))),
            (None, None, Ok(None)),
            (None, Some(5), Err("linux.resources.memory.swap: needs linux.resources.memory.limit too")),
            (
                Some(100),
                Some(5),
                Err("linux.resources.memory.swap: memory+swap limit should be >= memory limit"),
            ),
            (Some(-2), Some(5), Err("linux.resources.memory.limit: -2 is out of range")),
        ];
        for (limit, swap, expected) in cases {
            let found = swap_alone(limit, swap).map_err(|error| error.to_string());
            assert_eq!(found, expected.map_err(str::to_owned), "{limit:?} {swap:?}");
        }
    }
}
