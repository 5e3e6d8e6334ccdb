/* The functions that floor.c needs for system calls that glibc 2.36 does not know, and for the program for devices. */

#include <err.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* <sys/mount.h> of glibc 2.36 collides with <linux/mount.h>. */
enum { MNT_DETACH = 2 };
int mount(const char *, const char *, const char *, unsigned long, const void *);
int umount2(const char *, int);

enum { RO = MOUNT_ATTR_RDONLY, NOSUID = MOUNT_ATTR_NOSUID, NODEV = MOUNT_ATTR_NODEV, NOEXEC = MOUNT_ATTR_NOEXEC };

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Ends the program if a call has failed. The child shares this memory, but only one of the two fails at a time. */
static long must(long result, const char *call)
{
	if (result < 0)
		err(125, "%s", call);
	return result;
}
#define MUST(call) must(call, #call)

static long set_attributes(int mount, unsigned flags, uint64_t attributes)
{
	struct mount_attr attr = { .attr_set = attributes };

	return syscall(SYS_mount_setattr, mount, "", AT_EMPTY_PATH | flags, &attr, sizeof attr);
}

static int clone_tree(int at, const char *path, unsigned flags)
{
	return MUST(syscall(SYS_open_tree, at, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | flags));
}

static void attach(int mount, int at)
{
	MUST(syscall(SYS_move_mount, mount, "", at, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH));
}

static int open_inside(int root, const char *path, int flags)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC | flags,
				.resolve = RESOLVE_NO_MAGICLINKS | RESOLVE_IN_ROOT };

	return syscall(SYS_openat2, root, path, &how, sizeof how);
}

static int make_mount(const char *type, unsigned attributes, const char *const *option, const char *flag)
{
	int context = MUST(syscall(SYS_fsopen, type, FSOPEN_CLOEXEC)), mount;

	for (; *option; option += 2)
		MUST(syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, option[0], option[1], 0));
	if (flag)
		MUST(syscall(SYS_fsconfig, context, FSCONFIG_SET_FLAG, flag, NULL, 0));
	MUST(syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0));
	mount = MUST(syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, attributes));
	close(context);
	return mount;
}

#define LOAD(to, at) { BPF_LDX | BPF_MEM | BPF_W, to, 1, at, 0 }
#define ALU(act, to, value) { BPF_ALU | act | BPF_K, to, 0, 0, value }
#define WHEN(test, what, value, skip) { BPF_JMP32 | test | BPF_K, what, 0, skip, value }
#define SKIP(skip) { BPF_JMP | BPF_JA, 0, 0, skip, 0 }
#define END { BPF_JMP | BPF_EXIT, 0, 0, 0, 0 }

/* Allows the devices of every container, and mknod of all. This is husk's program for `husk spec`. */
static void limit_devices(int cgroup)
{
	static const struct bpf_insn program[] = {
		LOAD(3, 0), ALU(BPF_RSH, 3, 16), LOAD(4, 4), LOAD(5, 8), LOAD(2, 0), ALU(BPF_AND, 2, 0xffff),
		WHEN(BPF_JNE, 2, BPF_DEVCG_DEV_CHAR, 17), WHEN(BPF_JEQ, 4, 1, 4), WHEN(BPF_JEQ, 4, 5, 9),
		WHEN(BPF_JEQ, 4, 10, 11), WHEN(BPF_JEQ, 4, 136, 12), SKIP(13), WHEN(BPF_JEQ, 5, 3, 18),
		WHEN(BPF_JEQ, 5, 5, 17), WHEN(BPF_JEQ, 5, 7, 16), WHEN(BPF_JEQ, 5, 8, 15), WHEN(BPF_JEQ, 5, 9, 14),
		SKIP(7), WHEN(BPF_JEQ, 5, 0, 12), WHEN(BPF_JEQ, 5, 2, 11), SKIP(4), WHEN(BPF_JEQ, 5, 200, 9), SKIP(2),
		SKIP(7), SKIP(0), ALU(BPF_AND, 3, BPF_DEVCG_ACC_READ | BPF_DEVCG_ACC_WRITE), WHEN(BPF_JEQ, 3, 0, 2),
		ALU(BPF_MOV, 0, 0), END, ALU(BPF_MOV, 0, 1), END, ALU(BPF_MOV, 0, 1), END,
	};
	union bpf_attr load = { .prog_type = BPF_PROG_TYPE_CGROUP_DEVICE, .insn_cnt = COUNT(program),
				.insns = (uintptr_t)program, .license = (uintptr_t)"Apache-2.0" };
	int loaded = MUST(syscall(SYS_bpf, BPF_PROG_LOAD, &load, sizeof load));
	union bpf_attr attach = { .target_fd = cgroup, .attach_bpf_fd = loaded, .attach_type = BPF_CGROUP_DEVICE,
				  .attach_flags = BPF_F_ALLOW_MULTI };

	MUST(syscall(SYS_bpf, BPF_PROG_ATTACH, &attach, sizeof attach));
	close(loaded);
}
