/*
 * Measures the ways to start a process in C, in the process that starts it.
 *
 *     competitors start  NAME MIB LIMIT BUDGET_MS PROGRAM...   prints "series,returned,reaped" for each start
 *     competitors output NAME MIB LIMIT BUDGET_MS PROGRAM      prints one line "starts,wall,user,system"
 *     competitors batch  NAME MIB LIMIT BUDGET_MS PROGRAM      like "output", with other threads that are busy
 *     competitors libc                                         prints the C library of posix_spawn and popen
 *
 * Each command first maps MIB MiB of ordinary pages and writes to them. Then it starts PROGRAM until
 * LIMIT starts are done or BUDGET_MS milliseconds are over. All times are in nanoseconds. "start"
 * measures each program twice: series 0 is the first program on any CPU, series 1 the first program
 * bound to one CPU, series 2 the second program on any CPU, and so on. The Rust side (src/contend/)
 * uses the same protocol.
 *
 * "bare" is the lower bound that the others are compared with: clone3, execve and waitid, without
 * any precaution. Programs should not start processes in this way: a signal handler would run in the
 * child, the child inherits every descriptor, and an error is not reported.
 *
 *     cc -O2 -static -pthread -o competitors competitors.c
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../clone3.h"

extern char **environ;

static void die(const char *what)
{
	fprintf(stderr, "competitors: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* The actions of a child before exec. */
struct child {
	char *argv[3];
	int output;		/* becomes standard output, unless -1 */
	unsigned namespaces;	/* CLONE_NEW* flags to clone it with */
};

/* The stack of a child that does not use its parent's. There is one child at a time. */
static char stack[64 << 10] __attribute__((aligned(16)));

/* The child ----------------------------------------------------------------------------------- */

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		_exit(126);
	close(fd);
}

/* Written before the child exists. They map its own id to itself. */
static char uid_map[32], gid_map[32];

__attribute__((noreturn)) static void become(const struct child *child)
{
	if (child->namespaces & CLONE_NEWUSER) {
		write_file("/proc/self/uid_map", uid_map);
		write_file("/proc/self/setgroups", "deny");
		write_file("/proc/self/gid_map", gid_map);
	}
	if (child->output < 0 || dup2(child->output, STDOUT_FILENO) == STDOUT_FILENO)
		execve(child->argv[0], child->argv, environ);
	_exit(127);
}

static int become_on_stack(void *child)
{
	become(child);
}

/* Starters: each returns the child's pid ------------------------------------------------------- */

static pid_t start_fork(struct child *child)
{
	pid_t pid = fork();

	if (pid == 0)
		become(child);
	return pid;
}

/* Closes every descriptor, as programs do that cannot rely on O_CLOEXEC. */
static pid_t start_fork_close_all(struct child *child)
{
	pid_t pid = fork();

	if (pid == 0) {
		long most = sysconf(_SC_OPEN_MAX);

		for (int fd = 3; fd < most; fd++)
			close(fd);
		become(child);
	}
	return pid;
}

static pid_t start_vfork(struct child *child)
{
	pid_t pid = vfork();

	if (pid == 0)
		become(child);
	return pid;
}

static pid_t start_posix_spawn(struct child *child)
{
	posix_spawn_file_actions_t actions;
	pid_t pid;

	if (child->output >= 0) {
		posix_spawn_file_actions_init(&actions);
		posix_spawn_file_actions_adddup2(&actions, child->output, STDOUT_FILENO);
	}
	errno = posix_spawn(&pid, child->argv[0], child->output < 0 ? NULL : &actions, NULL, child->argv,
			    environ);
	if (child->output >= 0)
		posix_spawn_file_actions_destroy(&actions);
	return errno ? -1 : pid;
}

/* Returns at once. The stack is not reused before the child has been waited for. */
static pid_t start_clone_vm(struct child *child)
{
	return clone(become_on_stack, stack + sizeof stack, CLONE_VM | SIGCHLD, child);
}

static pid_t start_clone_vm_vfork(struct child *child)
{
	return clone(become_on_stack, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, child);
}

static pid_t start_bare(struct child *child)
{
	struct clone_args args = {
		.flags = CLONE_VM | CLONE_VFORK | child->namespaces,
		.exit_signal = SIGCHLD,
		.stack = (uintptr_t)stack,
		.stack_size = sizeof stack,
	};
	long result = clone3_call(&args, become_on_stack, child);

	if (result < 0) {
		errno = (int)-result;
		return -1;
	}
	return (pid_t)result;
}

enum { ISOLATED = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS };

static const struct starter {
	const char *name;
	pid_t (*start)(struct child *);
	unsigned namespaces;
} starters[] = {
	{ "fork", start_fork, 0 },
	{ "fork-close-all", start_fork_close_all, 0 },
	{ "vfork", start_vfork, 0 },
	{ "posix_spawn", start_posix_spawn, 0 },
	{ "clone-vm", start_clone_vm, 0 },
	{ "clone-vm-vfork", start_clone_vm_vfork, 0 },
	{ "bare", start_bare, 0 },
	{ "bare-isolated", start_bare, ISOLATED },
	{ "bare-isolated-net", start_bare, ISOLATED | CLONE_NEWNET },
};

static const struct starter *find_starter(const char *name)
{
	for (size_t i = 0; i < sizeof starters / sizeof *starters; i++)
		if (strcmp(starters[i].name, name) == 0)
			return &starters[i];
	errno = EINVAL;
	die(name);
	return NULL;
}

/* Shared by all experiments -------------------------------------------------------------------- */

static int64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void reap(pid_t pid)
{
	siginfo_t info;

	if (waitid(P_PID, (id_t)pid, &info, WEXITED) != 0)
		die("waitid");
	if (info.si_code != CLD_EXITED || info.si_status != 0) {
		fprintf(stderr, "competitors: the program ended with %d\n", info.si_status);
		exit(1);
	}
}

/* Returns memory that is in use, in pages of the ordinary size. fork has to copy its page tables. */
static char *touched(size_t size)
{
	static const int advices[] = { MADV_NOHUGEPAGE, MADV_POPULATE_WRITE };
	long page = sysconf(_SC_PAGESIZE);
	char *memory;

	if (size == 0)
		return NULL;
	memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		die("mmap");
	/*
	 * A kernel may lack huge pages, and populates mappings only since 5.14. Both only make the loop
	 * below faster.
	 */
	for (size_t i = 0; i < sizeof advices / sizeof *advices; i++)
		if (madvise(memory, size, advices[i]) != 0 && errno != EINVAL)
			die("madvise");
	for (size_t at = 0; at < size; at += (size_t)page)
		memory[at] = 1;
	return memory;
}

struct usage {
	int64_t user, system;
};

static struct usage usage(void)
{
	static const int who[] = { RUSAGE_SELF, RUSAGE_CHILDREN };
	struct usage sum = { 0, 0 };

	for (int i = 0; i < 2; i++) {
		struct rusage part;

		if (getrusage(who[i], &part) != 0)
			die("getrusage");
		sum.user += part.ru_utime.tv_sec * INT64_C(1000000000) + part.ru_utime.tv_usec * INT64_C(1000);
		sum.system += part.ru_stime.tv_sec * INT64_C(1000000000) + part.ru_stime.tv_usec * INT64_C(1000);
	}
	return sum;
}

struct job {
	const char *name;
	size_t size;
	long limit;
	int64_t budget;
	char **programs;
	int count;
};

/* Experiment "start" --------------------------------------------------------------------------- */

struct times {
	int64_t returned, reaped;
};

static struct times timed(const struct starter *starter, struct child *child)
{
	int64_t begun = now();
	struct times times;
	pid_t pid = starter->start(child);

	times.returned = now() - begun;
	if (pid < 0)
		die(starter->name);
	reap(pid);
	times.reaped = now() - begun;
	return times;
}

static void run_on(const cpu_set_t *cpus)
{
	if (sched_setaffinity(0, sizeof *cpus, cpus) != 0)
		die("sched_setaffinity");
}

/* Returns the set of usable CPUs, and the set of the last one only. */
static void placements(cpu_set_t cpus[2])
{
	int last = CPU_SETSIZE - 1;

	if (sched_getaffinity(0, sizeof *cpus, &cpus[0]) != 0)
		die("sched_getaffinity");
	while (last > 0 && !CPU_ISSET(last, &cpus[0]))
		last--;
	CPU_ZERO(&cpus[1]);
	CPU_SET(last, &cpus[1]);
}

static void experiment_start(const struct job *job)
{
	const struct starter *starter = find_starter(job->name);
	struct times *times = malloc((size_t)job->limit * sizeof *times);
	cpu_set_t cpus[2];

	if (times == NULL)
		die("malloc");
	/* Touches every page, so that no page fault happens during the measurement. */
	memset(times, 1, (size_t)job->limit * sizeof *times);
	placements(cpus);
	for (int series = 0; series < 2 * job->count; series++) {
		struct child child = { { job->programs[series / 2], NULL }, -1, starter->namespaces };
		int64_t end;
		long starts = 0;

		run_on(&cpus[series % 2]);
		/* The first start reads files and fills caches, so it does not count. */
		timed(starter, &child);
		end = now() + job->budget;
		do
			times[starts++] = timed(starter, &child);
		while (starts < job->limit && now() < end);
		for (long i = 0; i < starts; i++)
			printf("%d,%lld,%lld\n", series, (long long)times[i].returned,
			       (long long)times[i].reaped);
	}
}

/* Experiments "output" and "batch" ------------------------------------------------------------- */

static void sum_up(const struct job *job, void (*once)(void *), void *argument)
{
	struct usage before, after;
	int64_t begun, end;
	long starts = 0;

	once(argument);
	before = usage();
	begun = now();
	end = begun + job->budget;
	do {
		once(argument);
		starts++;
	} while (starts < job->limit && now() < end);
	end = now();
	after = usage();
	printf("%ld,%lld,%lld,%lld\n", starts, (long long)(end - begun), (long long)(after.user - before.user),
	       (long long)(after.system - before.system));
}

struct output {
	const struct starter *starter;
	struct child child;
	char *command;
	int pipe[2];	/* only for system(3): the standard output of this process and its children */
};

static void open_pipe(int ends[2])
{
	if (pipe2(ends, O_CLOEXEC) != 0)
		die("pipe2");
}

static void output_by_starter(void *argument)
{
	struct output *output = argument;
	char text[256];
	ssize_t length, total = 0;
	int ends[2];
	pid_t pid;

	open_pipe(ends);
	output->child.output = ends[1];
	pid = output->starter->start(&output->child);
	if (pid < 0)
		die(output->starter->name);
	close(ends[1]);
	while ((length = read(ends[0], text, sizeof text)) > 0)
		total += length;
	close(ends[0]);
	if (total == 0)
		die("the program wrote nothing");
	reap(pid);
}

static void output_by_popen(void *argument)
{
	struct output *output = argument;
	char text[256];
	FILE *stream = popen(output->command, "re");

	if (stream == NULL || fgets(text, sizeof text, stream) == NULL || pclose(stream) != 0)
		die("popen");
}

static void output_by_system(void *argument)
{
	struct output *output = argument;
	char text[256];

	if (system(output->command) != 0 || read(output->pipe[0], text, sizeof text) <= 0)
		die("system");
}

static void experiment_output(const struct job *job)
{
	struct output output = { .child = { { job->programs[0], "line", NULL }, -1, 0 } };

	if (asprintf(&output.command, "'%s' line", job->programs[0]) < 0)
		die("asprintf");
	if (strcmp(job->name, "popen") == 0) {
		sum_up(job, output_by_popen, &output);
	} else if (strcmp(job->name, "system") == 0) {
		int standard_output = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);

		open_pipe(output.pipe);
		if (standard_output < 0 || dup2(output.pipe[1], STDOUT_FILENO) < 0)
			die("dup2");
		/* stdio buffers the results until exit, when standard output is restored. */
		sum_up(job, output_by_system, &output);
		if (dup2(standard_output, STDOUT_FILENO) < 0)
			die("dup2");
	} else {
		output.starter = find_starter(job->name);
		sum_up(job, output_by_starter, &output);
	}
}

enum { BUSY_THREADS = 7, BUSY_PAGES = 16, BUSY_SLEEP_MS = 5 };

struct part {
	volatile char *memory;
	size_t size;
};

/* Writes to a few pages of the thread's own, then sleeps, for ever. */
static void *keep_busy(void *argument)
{
	const struct timespec pause = { 0, BUSY_SLEEP_MS * 1000000L };
	struct part *part = argument;
	size_t page = (size_t)sysconf(_SC_PAGESIZE), at = 0;

	for (;;) {
		for (int i = 0; i < BUSY_PAGES && part->size > 0; i++) {
			part->memory[at]++;
			at = (at + page) % part->size;
		}
		nanosleep(&pause, NULL);
	}
	return NULL;
}

struct batch {
	const struct starter *starter;
	struct child child;
};

static void batch_once(void *argument)
{
	struct batch *batch = argument;
	pid_t pid = batch->starter->start(&batch->child);

	if (pid < 0)
		die(batch->starter->name);
	reap(pid);
}

static void experiment_batch(const struct job *job, char *memory)
{
	static struct part parts[BUSY_THREADS];
	struct batch batch = { find_starter(job->name), { { job->programs[0], NULL }, -1, 0 } };
	struct rlimit limit;

	/* The limit of a login shell. It determines the time of the loop that closes every descriptor. */
	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		die("getrlimit");
	if (limit.rlim_cur > 1024) {
		limit.rlim_cur = 1024;
		if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
			die("setrlimit");
	}
	for (int i = 0; i < BUSY_THREADS; i++) {
		pthread_t thread;

		parts[i].size = job->size / BUSY_THREADS;
		parts[i].memory = memory + (size_t)i * parts[i].size;
		errno = pthread_create(&thread, NULL, keep_busy, &parts[i]);
		if (errno)
			die("pthread_create");
	}
	sum_up(job, batch_once, &batch);
}

/* ---------------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
	struct job job;
	char *memory;

	if (argc == 2 && strcmp(argv[1], "libc") == 0) {
#ifdef __GLIBC__
		printf("glibc %d.%d\n", __GLIBC__, __GLIBC_MINOR__);
#else
		printf("not glibc\n");
#endif
		return 0;
	}
	if (argc < 7) {
		fprintf(stderr, "usage: competitors start|output|batch NAME MIB LIMIT BUDGET_MS PROGRAM...\n");
		return 2;
	}
	job.name = argv[2];
	job.size = strtoul(argv[3], NULL, 10) << 20;
	job.limit = strtol(argv[4], NULL, 10);
	job.budget = strtol(argv[5], NULL, 10) * INT64_C(1000000);
	job.programs = argv + 6;
	job.count = argc - 6;

	snprintf(uid_map, sizeof uid_map, "0 %u 1", geteuid());
	snprintf(gid_map, sizeof gid_map, "0 %u 1", getegid());
	memory = touched(job.size);
	if (strcmp(argv[1], "start") == 0) {
		experiment_start(&job);
	} else if (strcmp(argv[1], "output") == 0) {
		experiment_output(&job);
	} else if (strcmp(argv[1], "batch") == 0) {
		experiment_batch(&job, memory);
	} else {
		errno = EINVAL;
		die(argv[1]);
	}
	return 0;
}
