//! Writes a program's input and reads both of its output streams, whatever their size. Replaces popen(3) and
//! system(3), without a shell.
//!
//!     cargo run --release -p husk-spawn --example popen

#![expect(clippy::disallowed_macros, reason = "an example prints as programs do")]

use husk_spawn::Command;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    // Larger than any pipe. A program that writes before it has read everything would block a caller that writes
    // everything before it reads.
    let input: Vec<u8> = (0..200_000).flat_map(|line| format!("line {line}\n").into_bytes()).collect();
    let output = Command::new("grep").args(["-c", "7"]).output_with_input(&input)?;
    print!("lines with a 7: {}", String::from_utf8(output.stdout)?);

    let same = Command::new("cat").output_with_input(&input)?.stdout == input;
    println!("{} bytes through cat and back, unchanged: {same}", input.len());

    let refused = Command::new("ls").arg("/no/such").output()?;
    println!("ls: {}, with {} bytes on standard error", refused.status, refused.stderr.len());
    Ok(())
}
