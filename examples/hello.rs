//! The program of the example bundles: it prints what it finds in its container. It is static, so the root file system
//! needs no other file.

#![expect(clippy::disallowed_macros, reason = "an example prints as programs do")]

use std::fs;
use std::io;
use std::process;

fn main() -> io::Result<()> {
    println!("hello from pid {} on {}", process::id(), line("/proc/sys/kernel/hostname")?);
    println!("  files         {}", names("/")?.join(" "));
    println!("  devices       {}", names("/dev")?.join(" "));
    println!("  processes     {}", numbers(&names("/proc")?));
    // A sandbox has no sysfs.
    let devices = names("/sys/class/net").unwrap_or_default();
    println!("  network       {}", devices.join(" "));
    println!("  capabilities  {}", status("CapEff")?);
    println!("  privileges    {} to be gained", if status("NoNewPrivs")? == "1" { "none" } else { "some" });
    println!(
        "  root          {}",
        fs::write("/file", "").map_or_else(|error| error.to_string(), |()| "writable".into())
    );
    Ok(())
}

fn line(path: &str) -> io::Result<String> {
    Ok(fs::read_to_string(path)?.trim_end().to_owned())
}

fn names(directory: &str) -> io::Result<Vec<String>> {
    let names = fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name().display().to_string()));
    let mut names = names.collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

fn numbers(names: &[String]) -> String {
    let numbers = names.iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    numbers.cloned().collect::<Vec<_>>().join(" ")
}

fn status(name: &str) -> io::Result<String> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(line.unwrap_or_default().trim().to_owned())
}
