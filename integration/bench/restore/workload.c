/*
 * The program of a container that is saved and restored.
 *
 *     workload PROCESSES MIB MB_PER_SECOND
 *
 * Has PROCESSES processes in all, maps and fills MIB MiB of memory, and then writes to the fifo /ready. If
 * MB_PER_SECOND is not zero it goes on to write to its memory at this rate, every 5 ms, from the beginning to the end
 * and again. Whenever it was stopped for longer than 20 ms, it adds two times to the file /pauses, in microseconds
 * since 1970: the last one before the pause, and the first one after it.
 *
 *     cc -O2 -static -o workload workload.c
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PERIOD_US = 5000, LONG_US = 20000 };

static void die(const char *what)
{
	fprintf(stderr, "workload: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* The clock of the day, because restored processes continue to see the other ones where they stopped. */
static uint64_t now_us(void)
{
	struct timespec time;

	clock_gettime(CLOCK_REALTIME, &time);
	return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_nsec / 1000;
}

static void append(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		die(path);
	close(fd);
}

/* A page of numbers that no other page has. */
static void fill(char *page, uint64_t seed)
{
	uint64_t *numbers = (uint64_t *)page;
	size_t index;

	for (index = 0; index < PAGE / sizeof *numbers; index++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		numbers[index] = seed;
	}
}

int main(int argc, char **argv)
{
	long processes, pages, rate, at = 0, index;
	uint64_t last, owed = 0, round = 0;
	char *memory = NULL;

	if (argc != 4) {
		fprintf(stderr, "workload PROCESSES MIB MB_PER_SECOND\n");
		return 2;
	}
	processes = atol(argv[1]);
	pages = atol(argv[2]) * 256;
	rate = atol(argv[3]);
	for (index = 1; index < processes; index++) {
		pid_t pid = fork();

		if (pid < 0)
			die("fork");
		if (pid == 0)
			for (;;)
				pause();
	}
	if (pages > 0) {
		memory = mmap(NULL, (size_t)pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (memory == MAP_FAILED)
			die("mmap");
		for (index = 0; index < pages; index++)
			fill(memory + index * PAGE, (uint64_t)index);
	}
	append("/ready", "ready\n");
	if (rate == 0)
		for (;;)
			pause();
	last = now_us();
	for (;;) {
		struct timespec period = { .tv_nsec = PERIOD_US * 1000 };
		uint64_t now;

		nanosleep(&period, NULL);
		now = now_us();
		if (now - last > LONG_US) {
			char text[64];

			snprintf(text, sizeof text, "%llu %llu\n", (unsigned long long)last, (unsigned long long)now);
			append("/pauses", text);
		} else {
			/* What a pause prevented is not made up for. */
			owed += (now - last) * (uint64_t)rate;
		}
		for (; owed >= PAGE; owed -= PAGE) {
			fill(memory + at * PAGE, ++round + (uint64_t)pages);
			at = (at + 1) % pages;
		}
		last = now;
	}
}
