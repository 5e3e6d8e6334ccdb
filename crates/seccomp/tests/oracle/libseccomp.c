/*
 * Compiles profiles with libseccomp, for tests/libseccomp.rs. That test compiles this program with the
 * machine's C compiler if libseccomp's headers are installed. It reads profiles from standard input,
 * in lines of words with numbers in hexadecimal:
 *
 *     profile DEFAULT-ACTION
 *     arch NAME
 *     rule ACTION NAME [ARGUMENT OPERATOR A B]...
 *     named NAME                    a name without a rule
 *     end
 *
 * For each profile it prints lines of words:
 *
 *     unknown NAME                  libseccomp does not know this name; its rule is skipped
 *     refused ERRNO NAME            libseccomp rejects this rule, and it is left out of the profile
 *     number ARCH NUMBER            the number of a name in a rule, with the x32 bit
 *     code OP JT JF K               one instruction
 *     end
 *
 * Operators are those of enum scmp_compare. Actions are the return values of the filter.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void fail(const char *what, int error)
{
	fprintf(stderr, "%s: %s\n", what, strerror(error));
	exit(1);
}

static void print_program(scmp_filter_ctx filter)
{
	int file = memfd_create("program", MFD_CLOEXEC);
	if (file < 0)
		fail("memfd_create", errno);
	int error = seccomp_export_bpf(filter, file);
	if (error)
		fail("seccomp_export_bpf", -error);
	struct sock_filter code;
	lseek(file, 0, SEEK_SET);
	while (read(file, &code, sizeof code) == sizeof code)
		printf("code %x %x %x %x\n", code.code, code.jt, code.jf, code.k);
	close(file);
}

int main(void)
{
	char *line = NULL, *save, *word;
	size_t size = 0;
	scmp_filter_ctx filter = NULL;
	uint32_t arches[16];
	char names[16][32];
	int count = 0;

	while (getline(&line, &size, stdin) > 0) {
		word = strtok_r(line, " \n", &save);
		if (!word)
			continue;
		if (!strcmp(word, "profile")) {
			filter = seccomp_init(strtoul(strtok_r(NULL, " \n", &save), NULL, 16));
			if (!filter)
				fail("seccomp_init", EINVAL);
			count = 0;
		} else if (!strcmp(word, "arch")) {
			word = strtok_r(NULL, " \n", &save);
			arches[count] = seccomp_arch_resolve_name(word);
			snprintf(names[count], sizeof names[0], "%s", word);
			int error = seccomp_arch_add(filter, arches[count++]);
			if (error && error != -EEXIST)
				fail("seccomp_arch_add", -error);
		} else if (!strcmp(word, "rule") || !strcmp(word, "named")) {
			int rule = !strcmp(word, "rule");
			uint32_t action = rule ? strtoul(strtok_r(NULL, " \n", &save), NULL, 16) : 0;
			char *name = strtok_r(NULL, " \n", &save);
			int number = seccomp_syscall_resolve_name(name);
			if (number == __NR_SCMP_ERROR) {
				printf("unknown %s\n", name);
				continue;
			}
			for (int i = 0; i < count; i++) {
				int here = seccomp_syscall_resolve_name_arch(arches[i], name);
				if (here >= 0)
					printf("number %s %x\n", names[i], here);
			}
			if (!rule)
				continue;
			struct scmp_arg_cmp arguments[6];
			unsigned int length = 0;
			while (length < 6 && (word = strtok_r(NULL, " \n", &save))) {
				arguments[length].arg = strtoul(word, NULL, 16);
				arguments[length].op = strtoul(strtok_r(NULL, " \n", &save), NULL, 16);
				arguments[length].datum_a = strtoull(strtok_r(NULL, " \n", &save), NULL, 16);
				arguments[length].datum_b = strtoull(strtok_r(NULL, " \n", &save), NULL, 16);
				length++;
			}
			int error = seccomp_rule_add_array(filter, action, number, length, arguments);
			if (error)
				printf("refused %x %s\n", -error, name);
		} else if (!strcmp(word, "end")) {
			print_program(filter);
			seccomp_release(filter);
			printf("end\n");
			fflush(stdout);
		}
	}
	return 0;
}
