//! A container's resource usage, for people.

use husk_runtime::{Amount, BlkioEntry, Stats};
use std::fmt::{self, Display, Formatter};

/// One line for each kind of resource.
pub(super) struct Usage<'u>(pub(super) &'u Stats);

impl Display for Usage<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Stats { cpu, memory, pids, blkio, hugetlb, .. } = self.0;
        let (all, user, kernel) = (cpu.usage.total, cpu.usage.user, cpu.usage.kernel);
        writeln!(f, "cpu        {} ({} user, {} kernel)", Seconds(all), Seconds(user), Seconds(kernel))?;
        let throttling = &cpu.throttling;
        if throttling.throttled_periods > 0 {
            let (periods, time) = (throttling.periods, Seconds(throttling.throttled_time));
            writeln!(
                f,
                "           throttled in {} of {periods} periods, for {time}",
                throttling.throttled_periods
            )?;
        }
        let cache = if memory.cache > 0 {
            format!(", {} of it cached files", Bytes(memory.cache))
        } else {
            String::new()
        };
        writeln!(f, "memory     {}{cache}", Used(&memory.usage))?;
        // Version 1 counts memory and swap together.
        if memory.swap.usage > memory.usage.usage {
            writeln!(f, "swap       {}", Used(&memory.swap))?;
        }
        writeln!(f, "processes  {}{}", pids.current, limit(pids.limit, |limit| limit.to_string()))?;
        let moved = |wanted: &str| {
            let entries = blkio.io_service_bytes_recursive.iter();
            let is = |entry: &&BlkioEntry| entry.op.eq_ignore_ascii_case(wanted);
            Bytes(entries.filter(is).map(|entry| entry.value).sum())
        };
        writeln!(f, "disks      {} read, {} written", moved("read"), moved("write"))?;
        for (size, pages) in hugetlb.iter().filter(|(_, pages)| pages.usage > 0) {
            writeln!(f, "huge pages {} of {size}, peak {}", Bytes(pages.usage), Bytes(pages.max))?;
        }
        let stalls = [("cpu", &cpu.psi), ("memory", &memory.psi), ("disks", &blkio.psi)];
        let stalls = stalls.into_iter().filter_map(|(name, psi)| Some((name, psi.as_ref()?.some.avg10)));
        let stalls: Vec<_> = stalls.map(|(name, share)| format!("{name} {share:.1} %")).collect();
        if !stalls.is_empty() {
            writeln!(f, "waits for  {} of the last 10 s", stalls.join(", "))?;
        }
        Ok(())
    }
}

/// Returns the part of a line that names a limit, if there is one.
fn limit(limit: u64, text: impl Fn(u64) -> String) -> String {
    /// The kernel reports the absence of a limit as a number of this size.
    const NONE: u64 = 1 << 62;
    if limit == 0 || limit >= NONE { String::new() } else { format!(" of {}", text(limit)) }
}

/// An amount with its limit and its highest value.
struct Used<'a>(&'a Amount);

impl Display for Used<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Amount { limit: most, usage, max, failcnt } = *self.0;
        write!(f, "{}{}", Bytes(usage), limit(most, |limit| Bytes(limit).to_string()))?;
        if max > 0 {
            write!(f, ", peak {}", Bytes(max))?;
        }
        if failcnt > 0 {
            write!(f, ", limit reached {failcnt} times")?;
        }
        Ok(())
    }
}

/// Nanoseconds, displayed as seconds.
struct Seconds(u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} s", self.0 as f64 / 1e9)
    }
}

struct Bytes(u64);

impl Display for Bytes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let units = ["KiB", "MiB", "GiB", "TiB"];
        let mut value = self.0 as f64;
        let mut unit = "bytes";
        for next in units {
            if value < 1024.0 {
                break;
            }
            (value, unit) = (value / 1024.0, next);
        }
        let digits = usize::from(unit != "bytes");
        write!(f, "{value:.digits$} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::Usage;
    use husk_runtime::{Amount, BlkioEntry, Stats};

    #[test]
    fn usage_is_said_in_words() {
        let mut stats = Stats::default();
        stats.cpu.usage.total = 1_250_000_000;
        stats.cpu.usage.user = 1_000_000_000;
        stats.cpu.usage.kernel = 250_000_000;
        stats.memory.usage = Amount { limit: 512 << 20, usage: 3 << 19, max: 2 << 20, failcnt: 0 };
        stats.pids.current = 2;
        stats.pids.limit = u64::MAX;
        let entry = |op: &str, value| BlkioEntry { op: op.to_owned(), value, ..BlkioEntry::default() };
        stats.blkio.io_service_bytes_recursive =
            vec![entry("Read", 1023), entry("Write", 0), entry("Read", 1)];
        let wanted = "\
cpu        1.250 s (1.000 s user, 0.250 s kernel)
memory     1.5 MiB of 512.0 MiB, peak 2.0 MiB
processes  2
disks      1.0 KiB read, 0 bytes written
";
        assert_eq!(Usage(&stats).to_string(), wanted);
        stats.cpu.throttling.throttled_periods = 3;
        stats.cpu.throttling.periods = 10;
        stats.cpu.throttling.throttled_time = 120_000_000;
        stats.memory.usage.failcnt = 4;
        stats.pids.limit = 100;
        let text = Usage(&stats).to_string();
        for line in [
            "           throttled in 3 of 10 periods, for 0.120 s\n",
            ", peak 2.0 MiB, limit reached 4 times\n",
            "processes  2 of 100\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
