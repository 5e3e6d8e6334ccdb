/*
 * Starts the commands of a script one after the other, and measures each from posix_spawn until it is reaped.
 *
 *     cc -O2 -static -o drive drive.c
 *     drive SECTION <SCRIPT >>times.csv
 *
 * Each line of the script is a list of words with tabs between them:
 *
 *     round NUMBER                    names the round of the lines that follow
 *     unmeasured PROGRAM ...          runs a command without measuring it
 *     run WHAT WHO PROGRAM ...        runs and measures a command, and adds its time to the total
 *     aside WHAT WHO PROGRAM ...      runs and measures a command, but does not add its time
 *     gone WHAT WHO FILE              measures and adds the time until the process ends whose number is in FILE
 *     total WHAT WHO                  prints the sum of the lines that were added since the last total
 *     many WHAT WHO NUMBER PROGRAM .. starts a command as often at once, and measures until all are reaped; every `%`
 *                                     in the arguments becomes 1, 2, ...
 *
 * Prints a line of CSV for each measurement: section,what,who,round,nanoseconds,maximum resident set in KiB. The first
 * command that fails ends the program. A child's maximum is at least what this program uses, so this program is small.
 */

#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 64, AT_ONCE = 64 };

static posix_spawn_file_actions_t actions;
static const char *section;
static long line_number, most_memory;

static long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000 + time.tv_nsec;
}

static void failed(char **command, const char *why, int value)
{
	fprintf(stderr, "drive: section %s, line %ld: %s %d:", section, line_number, why, value);
	for (; *command; command++)
		fprintf(stderr, " %s", *command);
	fprintf(stderr, "\n");
	exit(1);
}

static pid_t start(char **command)
{
	pid_t pid;
	int error = posix_spawn(&pid, command[0], &actions, NULL, command, environ);

	if (error)
		failed(command, "error", error);
	return pid;
}

/* Waits for a process, and keeps the memory of the largest one. */
static void reap(pid_t pid, char **command)
{
	struct rusage usage;
	int status;

	if (wait4(pid, &status, 0, &usage) != pid)
		err(1, "wait4 %d", pid);
	if (status)
		failed(command, "status", status);
	if (usage.ru_maxrss > most_memory)
		most_memory = usage.ru_maxrss;
}

static long run(char **command)
{
	long begun = now();

	reap(start(command), command);
	return now() - begun;
}

/* Returns a copy of the word with a number in place of each `%`. */
static char *numbered(const char *word, int number)
{
	char text[4096];
	size_t length = 0;

	for (; *word && length < sizeof text - 16; word++) {
		if (*word == '%')
			length += sprintf(text + length, "%d", number);
		else
			text[length++] = *word;
	}
	text[length] = 0;
	return strdup(text);
}

static long run_many(int count, char **command)
{
	static char *commands[AT_ONCE][WORDS];
	pid_t pids[AT_ONCE];
	long begun, took;

	if (count > AT_ONCE)
		errx(1, "line %ld: at most %d at once", line_number, AT_ONCE);
	for (int i = 0; i < count; i++)
		for (int word = 0; command[word]; word++)
			commands[i][word] = numbered(command[word], i + 1);
	begun = now();
	for (int i = 0; i < count; i++)
		pids[i] = start(commands[i]);
	for (int i = 0; i < count; i++)
		reap(pids[i], commands[i]);
	took = now() - begun;
	for (int i = 0; i < count; i++)
		for (int word = 0; commands[i][word]; word++) {
			free(commands[i][word]);
			commands[i][word] = NULL;
		}
	return took;
}

/* This program is the subreaper of the containers, so it can wait for their processes. */
static long wait_for(const char *path)
{
	long begun = now();
	FILE *file = fopen(path, "r");
	int status;
	pid_t pid;

	if (!file || fscanf(file, "%d", &pid) != 1)
		errx(1, "%s has no process", path);
	fclose(file);
	if (waitpid(pid, &status, 0) != pid)
		err(1, "waitpid %d", pid);
	if (status)
		errx(1, "line %ld: the container ended with status %d", line_number, status);
	return now() - begun;
}

int main(int argc, char **argv)
{
	static char line[65536];
	long total = 0, took;
	int round = 0;

	if (argc != 2)
		errx(2, "usage: drive SECTION");
	section = argv[1];
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
		err(1, "PR_SET_CHILD_SUBREAPER");
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);

	while (fgets(line, sizeof line, stdin)) {
		char *words[WORDS] = { 0 }, *rest = line, *act, *word;
		int count = 0;

		line_number++;
		line[strcspn(line, "\n")] = 0;
		while ((word = strsep(&rest, "\t"))) {
			if (count == WORDS - 1)
				errx(1, "line %ld has too many words", line_number);
			words[count++] = word;
		}
		act = words[0];
		most_memory = 0;
		if (!strcmp(act, "round") && count == 2) {
			round = atoi(words[1]);
			continue;
		} else if (!strcmp(act, "unmeasured") && count > 1) {
			run(words + 1);
			continue;
		} else if (!strcmp(act, "run") && count > 3) {
			took = run(words + 3);
			total += took;
		} else if (!strcmp(act, "aside") && count > 3) {
			took = run(words + 3);
		} else if (!strcmp(act, "gone") && count == 4) {
			took = wait_for(words[3]);
			total += took;
		} else if (!strcmp(act, "total") && count == 3) {
			took = total;
			total = 0;
		} else if (!strcmp(act, "many") && count > 4) {
			took = run_many(atoi(words[3]), words + 4);
		} else {
			errx(1, "line %ld: %s", line_number, act);
		}
		printf("%s,%s,%s,%d,%ld,%ld\n", section, words[1], words[2], round, took, most_memory);
	}
	return fflush(stdout) ? 1 : 0;
}
