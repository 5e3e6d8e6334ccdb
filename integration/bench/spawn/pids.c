/*
 * Starts processes with chosen pids, in three ways that C has.
 *
 *     pids spin     SECONDS PROGRAM PID...   forks until the next pid is the chosen one
 *     pids last-pid SECONDS PROGRAM PID...   writes to /proc/sys/kernel/ns_last_pid before each start
 *     pids set-tid  SECONDS PROGRAM PID...   passes the pid to clone3
 *
 * Runs as the first process of a pid namespace and of the user namespace that owns it, so that no other process takes
 * a pid. The namespace has a /proc of its own. Prints one line "pid_max,started,forks,nanoseconds". A spin stops after
 * SECONDS; then fewer processes are started than pids were given.
 *
 *     cc -O2 -static -o pids pids.c
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../clone3.h"

static void die(const char *what)
{
	fprintf(stderr, "pids: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static long read_number(const char *path)
{
	char text[32];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

	if (length <= 0)
		die(path);
	close(fd);
	text[length] = 0;
	return atol(text);
}

static char *program[2];
static char *environment[1];
static uint64_t forks, deadline;

/* Starts the program with whatever pid is next. */
static pid_t start(void)
{
	pid_t pid = vfork();

	forks++;
	if (pid == 0) {
		execve(program[0], program, environment);
		_exit(127);
	}
	if (pid < 0)
		die("vfork");
	return pid;
}

/* Uses up pids by the cheapest process there is, until the next pid is the chosen one. */
static int spin(pid_t chosen, pid_t last)
{
	while (last != chosen - 1) {
		last = vfork();
		if (last == 0)
			_exit(0);
		if (last < 0)
			die("vfork");
		if (waitpid(last, NULL, 0) != last)
			die("waitpid");
		if (++forks % 256 == 0 && now() > deadline)
			return 0;
	}
	return start() == chosen;
}

static int last_pid(pid_t chosen)
{
	char text[16];
	int length = snprintf(text, sizeof text, "%d", chosen - 1);
	int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, (size_t)length) != length)
		die("ns_last_pid");
	close(fd);
	return start() == chosen;
}

static int execute(void *unused)
{
	(void)unused;
	execve(program[0], program, environment);
	_exit(127);
}

static int set_tid(pid_t chosen)
{
	static char stack[64 << 10] __attribute__((aligned(16)));
	struct clone_args args = {
		.flags = CLONE_VM | CLONE_VFORK,
		.exit_signal = SIGCHLD,
		.set_tid = (uintptr_t)&chosen,
		.set_tid_size = 1,
		.stack = (uintptr_t)stack,
		.stack_size = sizeof stack,
	};
	long pid = clone3_call(&args, execute, NULL);

	forks++;
	if (pid < 0) {
		errno = (int)-pid;
		die("clone3");
	}
	return pid == chosen;
}

int main(int argc, char **argv)
{
	const char *way = argc > 4 ? argv[1] : "";
	uint64_t begun;
	long most = read_number("/proc/sys/kernel/pid_max");
	pid_t last;
	int index, is_done = 1;

	if (argc < 5)
		die("pids WAY SECONDS PROGRAM PID...");
	program[0] = argv[3];
	/* Without this, the first start of those measured would also read the program for the first time. */
	last = start();
	if (waitpid(last, NULL, 0) != last)
		die("waitpid");
	forks = 0;
	begun = now();
	deadline = begun + (uint64_t)atol(argv[2]) * 1000000000;
	for (index = 4; index < argc && is_done; index++) {
		pid_t chosen = atoi(argv[index]);

		if (!strcmp(way, "spin"))
			is_done = spin(chosen, last);
		else if (!strcmp(way, "last-pid"))
			is_done = last_pid(chosen);
		else
			is_done = set_tid(chosen);
		last = chosen;
	}
	printf("%ld,%d,%llu,%llu\n", most, index - 4 - !is_done, (unsigned long long)forks,
	       (unsigned long long)(now() - begun));
	return 0;
}
