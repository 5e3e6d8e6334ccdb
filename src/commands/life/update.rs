//! `husk update`.

use crate::exit::Exit;
use crate::options::plain;
use crate::session::Session;
use crate::verb::Perform;
use anyhow::{Context as _, Result, anyhow};
use husk_runtime::{Resources, UpdateRequest};
use std::fs;
use std::io::{Read as _, stdin};
use std::path::{Path, PathBuf};

pub(crate) const MORE: &str = "
Limits that are not given stay unchanged. The file for --resources has the format of 'linux.resources' in
config.json. With --resources, husk ignores other limits on the command line, except those of Intel RDT.

EXAMPLES:
  {husk} update --memory 512m web-1                 limit memory
  {husk} update --pids-limit 100 web-1              limit processes
  {husk} update --resources limits.json web-1       read the limits from a file
  echo '{ \"cpu\": { \"quota\": 20000 } }' | husk update --resources - web-1
";

/// Change the resource limits of a container
#[derive(Debug, clap::Args)]
pub(crate) struct Update {
    /// Read all limits from this file; '-' is standard input
    #[arg(short, long, value_name = "FILE")]
    resources: Option<PathBuf>,
    /// Block I/O weight, from 10 to 1000
    #[arg(long, value_name = "WEIGHT")]
    blkio_weight: Option<u16>,
    /// Period of the CPU quota, in microseconds
    #[arg(long, value_name = "TIME")]
    cpu_period: Option<String>,
    /// CPU time per period, in microseconds
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    cpu_quota: Option<String>,
    /// CPU time that may accumulate beyond the quota, in microseconds
    #[arg(long, value_name = "TIME")]
    cpu_burst: Option<String>,
    /// CPU weight relative to other containers
    #[arg(long, value_name = "SHARES")]
    cpu_share: Option<String>,
    /// Period of realtime scheduling, in microseconds
    #[arg(long, value_name = "TIME")]
    cpu_rt_period: Option<String>,
    /// Realtime CPU time per period, in microseconds
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    cpu_rt_runtime: Option<String>,
    /// 1 to use only CPU time that is otherwise idle, or 0
    #[arg(long, value_name = "IDLE", allow_hyphen_values = true)]
    cpu_idle: Option<String>,
    /// CPUs to use, as a list: 0-3,7
    #[arg(long, value_name = "LIST")]
    cpuset_cpus: Option<String>,
    /// Memory nodes to use, as a list: 0-1
    #[arg(long, value_name = "LIST")]
    cpuset_mems: Option<String>,
    /// Accepted for compatibility with runc and ignored
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, hide = true)]
    kernel_memory: Option<String>,
    /// Accepted for compatibility with runc and ignored
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, hide = true)]
    kernel_memory_tcp: Option<String>,
    /// Memory limit in bytes or with a suffix: 512m, 2g; -1 for no limit
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    memory: Option<String>,
    /// Soft memory limit, in the same format
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    memory_reservation: Option<String>,
    /// Limit of memory and swap together, in the same format
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    memory_swap: Option<String>,
    /// Number of processes; -1 for no limit
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pids_limit: Option<i64>,
    /// L3 cache schema of Intel RDT
    #[arg(long, value_name = "SCHEMA")]
    l3_cache_schema: Option<String>,
    /// Memory bandwidth schema of Intel RDT
    #[arg(long, value_name = "SCHEMA")]
    mem_bw_schema: Option<String>,
    /// ID of the container
    id: String,
}

impl Perform for Update {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        let resources = match &self.resources {
            Some(file) => {
                let (resources, warnings) = husk_runtime::resources(&read(file)?)?;
                session.warn(&warnings);
                resources
            }
            None => self.limits()?,
        };
        if self.kernel_memory.is_some() || self.kernel_memory_tcp.is_some() {
            session.log.warning(&"--kernel-memory: ignored, because kernels no longer have this limit");
        }
        let update = UpdateRequest {
            resources,
            l3_cache_schema: said(self.l3_cache_schema),
            memory_bandwidth_schema: said(self.mem_bw_schema),
        };
        husk_runtime::update(&session.store, &self.id, &update, |warnings| session.warn(warnings))?;
        Ok(Exit::Success)
    }
}

impl Update {
    fn limits(&self) -> Result<Resources> {
        let mut resources = Resources::default();
        let cpu = &mut resources.cpu;
        cpu.period = number("cpu-period", &self.cpu_period)?;
        cpu.quota = number("cpu-quota", &self.cpu_quota)?;
        cpu.burst = number("cpu-burst", &self.cpu_burst)?;
        cpu.shares = number("cpu-share", &self.cpu_share)?;
        cpu.realtime_period = number("cpu-rt-period", &self.cpu_rt_period)?;
        cpu.realtime_runtime = number("cpu-rt-runtime", &self.cpu_rt_runtime)?;
        cpu.idle = number("cpu-idle", &self.cpu_idle)?;
        cpu.cpus = said(self.cpuset_cpus.clone());
        cpu.mems = said(self.cpuset_mems.clone());
        let memory = &mut resources.memory;
        memory.limit = bytes("memory", &self.memory)?;
        memory.reservation = bytes("memory-reservation", &self.memory_reservation)?;
        memory.swap = bytes("memory-swap", &self.memory_swap)?;
        resources.pids_limit = self.pids_limit;
        resources.block_io.weight = self.blkio_weight.filter(|weight| *weight != 0);
        Ok(resources)
    }
}

fn read(file: &Path) -> Result<Vec<u8>> {
    if file != Path::new("-") {
        return fs::read(file).with_context(|| format!("read {}", file.display()));
    }
    let mut bytes = Vec::new();
    stdin().read_to_end(&mut bytes).context("read standard input")?;
    Ok(bytes)
}

/// Returns a value unless it is empty: some callers give options without one.
fn said(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn number<T: std::str::FromStr>(option: &str, text: &Option<String>) -> Result<Option<T>>
where
    T::Err: std::error::Error,
{
    let text = text.as_ref().filter(|text| !text.is_empty());
    let parse = |text: &String| {
        let invalid =
            |error: T::Err| anyhow!("invalid value for {option}: {text:?}: {}", plain(&error.to_string()));
        text.parse().map_err(invalid)
    };
    text.map(parse).transpose()
}

fn bytes(option: &str, text: &Option<String>) -> Result<Option<i64>> {
    let text = text.as_ref().filter(|text| !text.is_empty());
    let invalid =
        |text: &str| format!("invalid value for {option}: {text:?}: not a number of bytes such as 512m");
    text.map(|text| amount(text).with_context(|| invalid(text))).transpose()
}

/// Parses an amount of memory: `1073741824`, `1g`, `512MiB`, `1.5 g`; -1 means no limit.
fn amount(text: &str) -> Option<i64> {
    if text == "-1" {
        return Some(-1);
    }
    let text = text.to_ascii_lowercase();
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = text.strip_suffix(unit)?;
    let unit = unit.trim_start();
    let letter = unit.strip_suffix("ib").or_else(|| unit.strip_suffix('b')).unwrap_or(unit);
    let shift = match letter {
        "" if unit != "ib" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<i64>() {
        return whole.checked_mul(1 << shift);
    }
    let (whole, part) = number.split_once('.')?;
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let digits = u32::try_from(part.len()).ok().filter(|digits| *digits <= 9)?;
    let part: i64 = if part.is_empty() { 0 } else { part.parse().ok()? };
    let part = i128::from(part) * (1_i128 << shift) / 10_i128.pow(digits);
    whole.checked_mul(1 << shift)?.checked_add(i64::try_from(part).ok()?)
}

#[cfg(test)]
mod tests {
    use super::amount;

    #[test]
    fn memory_size_accepts_units() {
        let table = [
            ("-1", -1),
            ("0", 0),
            ("4096", 4096),
            ("512m", 512 << 20),
            ("512MB", 512 << 20),
            ("1GiB", 1 << 30),
            ("1.5 g", 3 << 29),
            ("32b", 32),
        ];
        for (text, bytes) in table {
            assert_eq!(amount(text), Some(bytes), "{text}");
        }
        for text in ["", "-2", "m", "1x", "1 ib", "1.2.3", "9223372036854775807k"] {
            assert_eq!(amount(text), None, "{text}");
        }
    }
}
