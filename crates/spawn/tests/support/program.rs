//! Programs of a few instructions, without loader, libc or runtime. Nothing opens files or changes signals
//! before a test can check them.

use husk_spawn::sys::file::{Mode, OFlags};
use husk_spawn::{Command, Stdio, Step};
use std::path::Path;

/// Returns a program that exits with this status.
pub(crate) fn exits(status: u8) -> Vec<u8> {
    elf(&exit(status))
}

/// Returns a program that writes a byte to standard output, reads standard input to its end, and exits with
/// this status.
pub(crate) fn holds(status: u8) -> Vec<u8> {
    elf(&[announce_and_read(), exit(status)].concat())
}

/// Installs `program` as the executable file `path`.
///
/// A child writes the file. If this process did, a child of another thread could briefly hold a copy of the
/// descriptor. Exec rejects files that are open for writing (ETXTBSY).
pub(crate) fn install(program: Vec<u8>, path: &Path) {
    super::watch();
    let file = path.to_owned();
    let written = Command::new(path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .steps(move |writer| {
            let out = writer.register()?;
            let path = writer.text(&file)?;
            let bytes = writer.slice(&program);
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
            writer.push(Step::Open { path, flags, mode: Mode::from_raw_mode(0o755), out });
            writer.push(Step::Write { fd: out.into(), bytes });
            writer.push(Step::Close { fd: out.into() });
            Ok(())
        })
        .status();
    written.expect("a program that runs");
}

#[cfg(target_arch = "x86_64")]
fn announce_and_read() -> Vec<u8> {
    [
        &[0x48, 0x89, 0xe6][..],         // mov rsi, rsp
        &[0xba, 0x01, 0x00, 0x00, 0x00], // mov edx, 1
        &[0xbf, 0x01, 0x00, 0x00, 0x00], // mov edi, 1
        &[0xb8, 0x01, 0x00, 0x00, 0x00], // mov eax, 1 (write)
        &[0x0f, 0x05],                   // syscall
        &[0x31, 0xff],                   // again: xor edi, edi
        &[0x31, 0xc0],                   // xor eax, eax (read)
        &[0x0f, 0x05],                   // syscall
        &[0x85, 0xc0],                   // test eax, eax
        &[0x7f, 0xf6],                   // jg again
    ]
    .concat()
}

#[cfg(target_arch = "x86_64")]
fn exit(status: u8) -> Vec<u8> {
    [
        &[0xbf, status, 0x00, 0x00, 0x00][..], // mov edi, status
        &[0xb8, 0xe7, 0x00, 0x00, 0x00],       // mov eax, 231 (exit_group)
        &[0x0f, 0x05],                         // syscall
    ]
    .concat()
}

#[cfg(target_arch = "aarch64")]
fn announce_and_read() -> Vec<u8> {
    words(&[
        0x9100_03e1, // mov x1, sp
        0x5280_0022, // mov w2, 1
        0x5280_0020, // mov w0, 1
        0x5280_0808, // mov w8, 64 (write)
        0xd400_0001, // svc 0
        0x5280_0000, // again: mov w0, 0
        0x5280_07e8, // mov w8, 63 (read)
        0xd400_0001, // svc 0
        0x7100_001f, // cmp w0, 0
        0x54ff_ff8c, // b.gt again
    ])
}

#[cfg(target_arch = "aarch64")]
fn exit(status: u8) -> Vec<u8> {
    words(&[
        0x5280_0000 | u32::from(status) << 5, // mov w0, status
        0x5280_0bc8,                          // mov w8, 94 (exit_group)
        0xd400_0001,                          // svc 0
    ])
}

#[cfg(target_arch = "aarch64")]
fn words(instructions: &[u32]) -> Vec<u8> {
    instructions.iter().flat_map(|word| word.to_le_bytes()).collect()
}

const MACHINE: u16 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };

/// The address at which the file is mapped, and the sizes of its two headers (elf(5)).
const ADDRESS: u64 = 0x40_0000;
const FILE_HEADER: u16 = 64;
const SEGMENT_HEADER: u16 = 56;

/// Returns a static executable: headers and `code`, mapped as in the file.
fn elf(code: &[u8]) -> Vec<u8> {
    let start = FILE_HEADER + SEGMENT_HEADER;
    let length = u64::from(start) + code.len() as u64;
    let mut file = Vec::new();
    // e_ident: 64 bits, little endian, version 1.
    file.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    // e_type EXEC, e_machine; e_version, e_entry, e_phoff, e_shoff, e_flags.
    half(&mut file, &[2, MACHINE]);
    word(&mut file, &[1]);
    long(&mut file, &[ADDRESS + u64::from(start), u64::from(FILE_HEADER), 0]);
    word(&mut file, &[0]);
    // e_ehsize, e_phentsize, e_phnum; no sections.
    half(&mut file, &[FILE_HEADER, SEGMENT_HEADER, 1, 0, 0, 0]);
    // p_type LOAD, p_flags read and execute; p_offset, p_vaddr, p_paddr, sizes, p_align.
    word(&mut file, &[1, 5]);
    long(&mut file, &[0, ADDRESS, ADDRESS, length, length, 0x1_0000]);
    file.extend(code);
    file
}

fn half(file: &mut Vec<u8>, values: &[u16]) {
    file.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}

fn word(file: &mut Vec<u8>, values: &[u32]) {
    file.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}

fn long(file: &mut Vec<u8>, values: &[u64]) {
    file.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}
