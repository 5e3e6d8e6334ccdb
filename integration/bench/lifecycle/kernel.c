// Times what the kernel does for a container, one part at a time, without any runtime: prints a line of Markdown with the
// median time in microseconds of each kind of namespace, from clone until the child is reaped, and of a cgroup, from
// mkdir until rmdir. The first argument is a directory of cgroup version 2.

#define _GNU_SOURCE
#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 300 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double times[ROUNDS]) {
    qsort(times, ROUNDS, sizeof(double), compare);
    return (times[ROUNDS / 2 - 1] + times[ROUNDS / 2]) / 2;
}

static void fail(const char *what) {
    fprintf(stderr, "kernel: %s: %s\n", what, strerror(errno));
    exit(1);
}

/// Returns the time of a child in new namespaces that ends at once, until clone returns and until it is reaped.
static void child(unsigned long long namespaces, double *cloned, double *reaped) {
    double begun[ROUNDS], ended[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        struct clone_args arguments = { .flags = namespaces | CLONE_VFORK | CLONE_VM, .exit_signal = SIGCHLD };
        char stack[4096] __attribute__((aligned(16)));
        arguments.stack = (unsigned long)stack;
        arguments.stack_size = sizeof stack;
        double start = now();
        // The child uses nothing but its own stack, which is empty, and ends.
        long pid;
        __asm__ volatile("syscall\n\t"
                         "test %%rax, %%rax\n\t"
                         "jnz 1f\n\t"
                         "mov %[leave], %%rax\n\t"
                         "xor %%rdi, %%rdi\n\t"
                         "syscall\n\t"
                         "1:"
                         : "=a"(pid)
                         : "a"((long)SYS_clone3), "D"(&arguments), "S"(sizeof arguments), [leave] "i"(SYS_exit_group)
                         : "rcx", "r11", "memory");
        if (pid < 0) {
            errno = (int)-pid;
            fail("clone3");
        }
        begun[round] = now() - start;
        if (waitpid((pid_t)pid, NULL, 0) != pid) fail("waitpid");
        ended[round] = now() - start;
    }
    *cloned = median(begun);
    *reaped = median(ended);
}

int main(int count, char **words) {
    static const struct {
        const char *name;
        unsigned long long flags;
    } kinds[] = {
        { "no namespace", 0 },
        { "mount", CLONE_NEWNS },
        { "UTS", CLONE_NEWUTS },
        { "IPC", CLONE_NEWIPC },
        { "pid", CLONE_NEWPID },
        { "cgroup", CLONE_NEWCGROUP },
        { "network", CLONE_NEWNET },
        { "all of these", CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWCGROUP | CLONE_NEWNET },
    };
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        double cloned, reaped;
        child(kinds[kind].flags, &cloned, &reaped);
        printf("| a child in a new namespace: %s | %.0f | %.0f |\n", kinds[kind].name, cloned, reaped);
    }
    if (count > 1) {
        double made[ROUNDS], removed[ROUNDS];
        char path[4096];
        snprintf(path, sizeof path, "%s/husk-where-%d", words[1], (int)getpid());
        for (int round = 0; round < ROUNDS; round++) {
            double start = now();
            if (mkdir(path, 0755)) fail(path);
            made[round] = now() - start;
            if (rmdir(path)) fail(path);
            removed[round] = now() - start;
        }
        double begun = median(made);
        printf("| an empty cgroup of version 2 | %.0f | %.0f |\n", begun, median(removed));
    }
}
