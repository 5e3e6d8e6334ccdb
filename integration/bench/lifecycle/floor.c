/*
 * The floor of `husk run`: makes the system calls that `strace -f husk run` shows for a bundle of `husk spec`, in the
 * same order and with the same arguments. Calls that only ask the kernel for something are left out. The program parses
 * no configuration and checks nothing, so a runtime that creates the same container can hardly be faster.
 *
 *     cc -O2 -static -o floor floor.c
 *     floor [--remap | --reexec | --seal] [--devices] STATE-ROOT BUNDLE ROOTFS CGROUP ID
 *
 *     --remap     replace the mappings of this program by those of a read-only mount of it, as husk does against CVE-2019-5736
 *     --reexec    execute it again from such a mount instead, as husk does if the kernel refuses that
 *     --seal      execute a sealed copy in memory instead, as husk does where it may not mount
 *     --devices   load and attach the program that limits access to devices
 *
 * CGROUP is the parent directory, below /sys/fs/cgroup, of version 2. The container runs /true. Needs root.
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../clone3.h"
#include "calls.h"
#include "remap.h"

static const struct file_system {
	const char *type, *at;
	unsigned attributes;
	const char *options[9];
} file_systems[] = {
	{ "proc", "proc", 0, { "source", "proc" } },
	{ "tmpfs", "dev", NOSUID | MOUNT_ATTR_STRICTATIME, { "source", "tmpfs", "mode", "755", "size", "65536k" } },
	{ "devpts", "dev/pts", NOSUID | NOEXEC, { "source", "devpts", "ptmxmode", "0666", "mode", "0620", "gid", "5" } },
	{ "tmpfs", "dev/shm", NOSUID | NOEXEC | NODEV, { "source", "shm", "mode", "1777", "size", "65536k" } },
	{ "mqueue", "dev/mqueue", NOSUID | NOEXEC | NODEV, { "source", "mqueue" } },
	{ "sysfs", "sys", RO | NOSUID | NOEXEC | NODEV, { "source", "sysfs" } },
	{ "cgroup2", "sys/fs/cgroup", RO | NOSUID | NOEXEC | NODEV, { "source", "cgroup" } },
};
static const struct { const char *name; int major, minor; } devices[] = {
	{ "null", 1, 3 }, { "zero", 1, 5 }, { "full", 1, 7 }, { "random", 1, 8 }, { "urandom", 1, 9 }, { "tty", 5, 0 },
};
static const char *const links[][2] = {
	{ "/proc/self/fd", "fd" }, { "/proc/self/fd/0", "stdin" }, { "/proc/self/fd/1", "stdout" },
	{ "/proc/self/fd/2", "stderr" }, { "pts/ptmx", "ptmx" },
};
static const char *const masked[] = {
	"proc/acpi", "proc/asound", "proc/kcore", "proc/keys", "proc/latency_stats", "proc/timer_list",
	"proc/timer_stats", "proc/sched_debug", "sys/firmware", "proc/scsi",
};
static const char *const readonly[] = { "proc/bus", "proc/fs", "proc/irq", "proc/sys", "proc/sysrq-trigger" };

/* The child's end of the socket by which parent and child speak. */
static int report;

static void mount_all(int root)
{
	for (size_t i = 0; i < COUNT(file_systems); i++) {
		const struct file_system *fs = &file_systems[i];
		int mount = make_mount(fs->type, fs->attributes, fs->options,
				       strcmp(fs->type, "devpts") ? NULL : "newinstance");
		int at = open_inside(root, fs->at, O_DIRECTORY);

		if (at < 0) {
			MUST(mkdirat(root, fs->at, 0755));
			at = MUST(open_inside(root, fs->at, O_DIRECTORY));
		}
		attach(mount, at);
		close(at);
		close(mount);
	}
}

static void make_devices(int root)
{
	int dev = MUST(open_inside(root, "dev", O_DIRECTORY));

	for (size_t i = 0; i < COUNT(devices); i++) {
		MUST(mknodat(dev, devices[i].name, S_IFCHR | 0666, makedev(devices[i].major, devices[i].minor)));
		MUST(fchownat(dev, devices[i].name, 0, 0, AT_SYMLINK_NOFOLLOW));
	}
	for (size_t i = 0; i < COUNT(links); i++)
		MUST(symlinkat(links[i][0], dev, links[i][1]));
	close(dev);
}

/* Covers files with /dev/null, and every directory with the same empty tmpfs. */
static void mask(int root)
{
	static const char *const options[] = { "mode", "555", NULL };
	int null = MUST(open("/dev/null", O_PATH | O_CLOEXEC)), empty = -1, mount, at;
	struct stat stat;

	for (size_t i = 0; i < COUNT(masked); i++) {
		at = open_inside(root, masked[i], 0);
		if (at < 0)
			continue;
		MUST(fstat(at, &stat));
		if (S_ISDIR(stat.st_mode) && empty < 0) {
			empty = mount = make_mount("tmpfs", RO | NOSUID | NODEV | NOEXEC, options, NULL);
		} else if (S_ISDIR(stat.st_mode)) {
			mount = clone_tree(empty, "", AT_EMPTY_PATH);
		} else {
			mount = clone_tree(null, "", AT_EMPTY_PATH);
			MUST(set_attributes(mount, 0, RO | NOSUID | NOEXEC));
		}
		attach(mount, at);
		if (mount != empty)
			close(mount);
		close(at);
	}
	for (size_t i = 0; i < COUNT(readonly); i++) {
		at = open_inside(root, readonly[i], 0);
		if (at < 0)
			continue;
		mount = clone_tree(at, "", AT_EMPTY_PATH | AT_RECURSIVE);
		MUST(set_attributes(mount, AT_RECURSIVE, RO));
		attach(mount, at);
		close(mount);
		close(at);
	}
}

static void limit_capabilities(void)
{
	/* CAP_KILL, CAP_NET_BIND_SERVICE and CAP_AUDIT_WRITE are kept, as by the configuration of `husk spec`. */
	const uint32_t kept = 1 << CAP_KILL | 1 << CAP_NET_BIND_SERVICE | 1 << CAP_AUDIT_WRITE;
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2] = { { kept, kept, 0 } };

	for (int capability = 0; capability < 64; capability++)
		if ((capability > 31 || !(kept & 1u << capability)) && prctl(PR_CAPBSET_DROP, capability) < 0)
			break;
	MUST(prctl(PR_SET_KEEPCAPS, 1));
	/* These are not the functions of glibc, which would ask the other threads too. */
	MUST(syscall(SYS_setgroups, 0, NULL));
	MUST(syscall(SYS_setresgid, 0, 0, 0));
	MUST(syscall(SYS_setresuid, 0, 0, 0));
	MUST(prctl(PR_SET_KEEPCAPS, 0));
	umask(022);
	MUST(syscall(SYS_capset, &header, data));
}

static void close_others(void)
{
	MUST(syscall(SYS_close_range, 3, report - 1, 0));
	MUST(syscall(SYS_close_range, report + 1, INT32_MAX, 0));
}

/* The child: becomes the container. It shares the parent's memory until it executes the program. */
static int child(void *rootfs)
{
	char *argv[] = { "/true", NULL };
	char *envp[] = { "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TERM=xterm", NULL };
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	struct rlimit files = { 1024, 1024 };
	char byte = 2;
	cpu_set_t cpus;
	sigset_t none;
	int at, root, stream;
	long keyring;

	close_others();
	MUST(setsid());
	keyring = MUST(syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, "_ses.floor"));
	MUST(syscall(SYS_keyctl, KEYCTL_SETPERM, keyring, 0x3f3b0000));
	MUST(sethostname("husk", 4));
	at = MUST(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	MUST(ioctl(at, SIOCSIFFLAGS, &lo));
	close(at);
	MUST(mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL));
	at = MUST(open(rootfs, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	root = clone_tree(AT_FDCWD, rootfs, AT_RECURSIVE);
	attach(root, at);
	close(at);
	umask(0);
	mount_all(root);
	make_devices(root);
	mask(root);
	MUST(set_attributes(root, 0, RO));
	MUST(fchdir(root));
	MUST(syscall(SYS_pivot_root, ".", "."));
	MUST(umount2(".", MNT_DETACH));
	MUST(chdir("/"));
	stream = MUST(open("/dev/null", O_RDWR | O_CLOEXEC));
	MUST(dup3(stream, 0, 0));
	close(stream);
	MUST(setrlimit(RLIMIT_NOFILE, &files));
	memset(&cpus, 0xff, sizeof cpus);
	MUST(sched_setaffinity(0, sizeof cpus, &cpus));
	limit_capabilities();
	MUST(access("/true", X_OK));
	close_others();
	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	MUST(prctl(PR_SET_DUMPABLE, 0));
	MUST(write(report, &byte, 1));
	MUST(read(report, &byte, 1));
	sigemptyset(&none);
	MUST(sigprocmask(SIG_SETMASK, &none, NULL));
	MUST(execve("/true", argv, envp));
	return 125;
}

/* Returns this program on a mount that nobody can write to, or -1 if it runs from one. */
static int read_only_self(void)
{
	struct statvfs on;
	int self;

	MUST(statvfs("/proc/self/exe", &on));
	if (on.f_flag & ST_RDONLY)
		return -1;
	self = clone_tree(AT_FDCWD, "/proc/self/exe", 0);
	MUST(set_attributes(self, 0, RO));
	return self;
}

/* Returns a copy of this program in memory that nobody can write to, or -1 if it runs from one. */
static int sealed_self(void)
{
	int self = MUST(open("/proc/self/exe", O_RDONLY | O_CLOEXEC)), copy;

	if (fcntl(self, F_GET_SEALS) > 0) {
		close(self);
		return -1;
	}
	copy = MUST(memfd_create("floor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
	while (MUST(sendfile(copy, self, NULL, 1 << 30)))
		;
	MUST(fcntl(copy, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL));
	return copy;
}

static void write_state(int directory)
{
	static const char text[390] = "{}";
	int file = MUST(openat(directory, ".new", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));

	MUST(write(file, text, sizeof text));
	MUST(renameat(directory, ".new", directory, "state.json"));
	close(file);
}

static void read_file(const char *path)
{
	static char text[8192];
	int file = MUST(open(path, O_RDONLY | O_CLOEXEC));

	MUST(read(file, text, sizeof text));
	close(file);
}

int main(int argc, char **argv)
{
	enum { STACK = 128 << 10, GUARD = 64 << 10 };
	int devices_too = 0, first = 1, root, state, top, parent, cgroup, ends[2], pidfd, signals;
	struct flock lock = { .l_type = F_RDLCK };
	char path[4096], byte, *id, *stack;
	sigset_t most, forwarded;
	siginfo_t info;
	long pid;

	for (; first < argc && argv[first][0] == '-'; first++) {
		int self = !strcmp(argv[first], "--reexec") ? read_only_self() :
			   !strcmp(argv[first], "--seal") ? sealed_self() : -1;

		if (!strcmp(argv[first], "--remap"))
			run_from(read_only_self());
		if (self >= 0)
			MUST(syscall(SYS_execveat, self, "", argv, environ, AT_EMPTY_PATH));
		devices_too |= !strcmp(argv[first], "--devices");
	}
	if (argc - first != 5)
		errx(2, "usage: floor [--remap | --reexec | --seal] [--devices] STATE-ROOT BUNDLE ROOTFS CGROUP ID");
	id = argv[first + 4];

	MUST(prctl(PR_SET_NAME, "floor"));
	snprintf(path, sizeof path, "%s/config.json", argv[first + 1]);
	read_file(path);
	sigfillset(&most);
	MUST(sigprocmask(SIG_SETMASK, &most, NULL));
	root = MUST(open(argv[first], O_DIRECTORY | O_CLOEXEC));
	MUST(mkdirat(root, id, 0700));
	state = MUST(openat(root, id, O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	MUST(fcntl(state, F_SETLK, &lock));
	write_state(state);

	top = MUST(open("/sys/fs/cgroup", O_DIRECTORY | O_CLOEXEC));
	parent = MUST(openat(top, argv[first + 3], O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	MUST(mkdirat(parent, id, 0755));
	cgroup = MUST(openat(parent, id, O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (devices_too)
		limit_devices(cgroup);

	MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
	report = ends[1];
	stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	MUST(mprotect(stack, GUARD, PROT_NONE));
	MUST(prctl(PR_SET_DUMPABLE, 0));
	struct clone_args args = {
		.flags = CLONE_VM | CLONE_PIDFD | CLONE_CLEAR_SIGHAND | CLONE_INTO_CGROUP | CLONE_NEWNS | CLONE_NEWCGROUP |
			 CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET,
		.pidfd = (uintptr_t)&pidfd, .exit_signal = SIGCHLD, .cgroup = cgroup,
		.stack = (uintptr_t)stack + GUARD, .stack_size = STACK - GUARD,
	};
	pid = MUST(clone3_call(&args, child, argv[first + 2]));
	close(ends[1]);
	snprintf(path, sizeof path, "/proc/%ld/stat", pid);
	read_file(path);
	write_state(state);
	sigemptyset(&forwarded);
	sigaddset(&forwarded, SIGTERM);
	signals = MUST(signalfd(-1, &forwarded, SFD_CLOEXEC | SFD_NONBLOCK));
	struct pollfd polled[] = { { ends[0], POLLIN, 0 }, { signals, POLLIN, 0 } };
	MUST(poll(polled, 2, -1));
	MUST(recv(ends[0], &byte, 1, MSG_DONTWAIT));
	MUST(send(ends[0], "", 1, MSG_NOSIGNAL));
	lock.l_type = F_UNLCK;
	MUST(fcntl(state, F_SETLK, &lock));
	MUST(sigwaitinfo(&most, &info));
	MUST(waitid(P_PIDFD, pidfd, &info, WEXITED));
	MUST(unlinkat(parent, id, AT_REMOVEDIR));
	MUST(unlinkat(state, "state.json", 0));
	MUST(unlinkat(root, id, AT_REMOVEDIR));
	return info.si_status;
}
