/* Has the floor run from a read-only mount without executing itself again, as husk does (crates/spawn/src/memory/program.rs). */

#include <link.h>
#include <linux/prctl.h>

extern const ElfW(Ehdr) __ehdr_start;

/* Puts a copy without a file in the place of data. The part that the C library has made read-only stays so. */
static void copy_data(uintptr_t start, size_t size, const ElfW(Phdr) *constant)
{
	uintptr_t end = constant ? (constant->p_vaddr + constant->p_memsz + 4095) & -4096UL : 0;
	size_t fixed = end <= start ? 0 : end - start < size ? end - start : size;
	char *new = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	memcpy(new, (void *)start, size);
	if (fixed) {
		MUST(mprotect(new, fixed, PROT_READ));
		MUST((long)mremap(new, fixed, fixed, MREMAP_MAYMOVE | MREMAP_FIXED, start));
	}
	if (fixed < size)
		MUST((long)mremap(new + fixed, size - fixed, size - fixed, MREMAP_MAYMOVE | MREMAP_FIXED, start + fixed));
}

/* The kernel sets all of these values, so the others are repeated as it has told them (proc_pid_stat(5)). */
static void name_program(int file)
{
	static const int fields[] = { 26, 27, 45, 46, 47, 0, 28, 48, 49, 50, 51 };
	unsigned long long values[64] = { 0 };
	struct prctl_mm_map map = { 0 };
	__u64 *member = &map.start_code;
	int stat = MUST(open("/proc/self/stat", O_RDONLY | O_CLOEXEC));
	char text[1024] = "", *at;

	MUST(read(stat, text, sizeof text - 1));
	close(stat);
	at = strrchr(text, ')') + 3;
	for (int field = 4; field < 52; field++)
		values[field] = strtoull(strchr(at, ' '), &at, 10);
	for (unsigned i = 0; i < COUNT(fields); i++)
		member[i] = fields[i] ? values[fields[i]] : (unsigned long long)sbrk(0);
	map.exe_fd = file;
	MUST(prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0));
}

static void run_from(int mount)
{
	const ElfW(Phdr) *all = (void *)((char *)&__ehdr_start + __ehdr_start.e_phoff), *constant = NULL;
	char path[32];
	int file;

	snprintf(path, sizeof path, "/proc/self/fd/%d", mount);
	file = MUST(open(path, O_RDONLY | O_CLOEXEC));
	for (int i = 0; i < __ehdr_start.e_phnum; i++)
		if (all[i].p_type == PT_GNU_RELRO)
			constant = &all[i];
	for (const ElfW(Phdr) *it = all; it < all + __ehdr_start.e_phnum; it++) {
		uintptr_t start = it->p_vaddr & -4096UL;
		size_t size = ((it->p_vaddr + it->p_filesz + 4095) & -4096UL) - start;
		int access = (it->p_flags & PF_R ? PROT_READ : 0) | (it->p_flags & PF_X ? PROT_EXEC : 0);

		if (it->p_type != PT_LOAD || !it->p_filesz)
			continue;
		if (it->p_flags & PF_W)
			copy_data(start, size, constant);
		else
			MUST((long)mmap((void *)start, size, access, MAP_PRIVATE | MAP_FIXED, file, it->p_offset & -4096UL));
	}
	name_program(file);
	close(file);
	close(mount);
}
