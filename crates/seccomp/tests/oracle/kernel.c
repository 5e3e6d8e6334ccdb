/*
 * Installs a filter and makes calls under it, for tests/kernel.rs, which compiles this program with the
 * machine's C compiler. It reads lines of words from standard input, with numbers in hexadecimal:
 *
 *     flags FLAGS             for seccomp(2)
 *     code OP JT JF K         one instruction
 *     call NUMBER A B         a call to make through the 64-bit entry point
 *     call32 NUMBER A B       a call to make through the 32-bit entry point; compiled for arm, every call is
 *
 * It prints lines of words, with numbers in decimal:
 *
 *     refused ERRNO           the kernel rejected the filter; nothing follows
 *     load NANOSECONDS        the time to install the filter, one line for each of TIMES attempts
 *     returned VALUE          the result of a call; an error number is negative
 *     killed SIGNAL           the signal that killed the process that made the calls
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TIMES 25

struct call {
	int narrow;
	long number, a, b;
	long returned;
};

/* The results of child processes, in memory that the parent shares. */
struct shared {
	long refused;
	long nanoseconds;
	int made;
	struct call calls[64];
};

static struct sock_filter codes[BPF_MAXINSNS];
static struct sock_fprog program = { 0, codes };
static unsigned long flags;

static void install(struct shared *shared)
{
	struct timespec before, after;

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	clock_gettime(CLOCK_MONOTONIC, &before);
	long result = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
	if (result < 0) {
		shared->refused = errno;
		_exit(1);
	}
	clock_gettime(CLOCK_MONOTONIC, &after);
	shared->nanoseconds = (after.tv_sec - before.tv_sec) * 1000000000L + after.tv_nsec - before.tv_nsec;
}

static long make(const struct call *call)
{
#ifdef __x86_64__
	if (call->narrow) {
		int result;
		__asm__ volatile("int $0x80" : "=a"(result) : "a"((int)call->number), "b"((int)call->a),
				 "c"((int)call->b), "d"(0) : "memory", "r8", "r9", "r10", "r11");
		return result;
	}
#endif
	long result = syscall(call->number, call->a, call->b, 0, 0, 0, 0);
	return result < 0 ? -errno : result;
}

int main(void)
{
	char *line = NULL, *save, *word;
	size_t size = 0;
	int count = 0, status;
	struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	while (getline(&line, &size, stdin) > 0) {
		word = strtok_r(line, " \n", &save);
		unsigned long words[4] = { 0 };
		char *next;
		for (int i = 0; i < 4 && (next = strtok_r(NULL, " \n", &save)); i++)
			words[i] = strtoul(next, NULL, 16);
		if (!strcmp(word, "flags"))
			flags = words[0];
		else if (!strcmp(word, "code"))
			codes[program.len++] = (struct sock_filter){ words[0], words[1], words[2], words[3] };
		else
			shared->calls[count++] = (struct call){ !strcmp(word, "call32"), words[0], words[1],
								words[2], 0 };
	}
	for (int i = 0; i < TIMES; i++) {
		if (fork() == 0) {
			install(shared);
			_exit(0);
		}
		wait(&status);
		if (shared->refused) {
			printf("refused %ld\n", shared->refused);
			return 0;
		}
		printf("load %ld\n", shared->nanoseconds);
	}
	fflush(stdout);
	if (fork() == 0) {
		install(shared);
		for (; shared->made < count; shared->made++)
			shared->calls[shared->made].returned = make(&shared->calls[shared->made]);
		_exit(0);
	}
	wait(&status);
	for (int i = 0; i < shared->made; i++)
		printf("returned %ld\n", shared->calls[i].returned);
	if (WIFSIGNALED(status))
		printf("killed %d\n", WTERMSIG(status));
	return 0;
}
