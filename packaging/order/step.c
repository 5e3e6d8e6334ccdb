/* Writes the addresses of all instructions that a program and its children execute to a file, in order and each once.
 *
 *     step FILE PROGRAM [ARGUMENTS]
 *
 * Records only code below 16 MB, where the linker places a program that has a fixed address. Follows each child until
 * the child executes another program. Ends with the program, and lets children that still run continue. */
#define _GNU_SOURCE
#include <elf.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define END (16UL << 20)
static char executed[END];

enum { MOST = 64 };
static pid_t children[MOST];
static int count;

static unsigned long address(pid_t pid) {
    struct user_regs_struct registers;
    struct iovec place = {&registers, sizeof registers};
    if (ptrace(PTRACE_GETREGSET, pid, (void *)NT_PRSTATUS, &place))
        return END;
#ifdef __x86_64__
    return registers.rip;
#else
    return registers.pc;
#endif
}

/* Detaches from a child, which must be stopped for this. */
static void release(pid_t child) {
    int status;
    if (kill(child, SIGSTOP))
        return;
    while (waitpid(child, &status, __WALL) == child && WIFSTOPPED(status)) {
        if (WSTOPSIG(status) == SIGSTOP) {
            ptrace(PTRACE_DETACH, child, 0, 0);
            return;
        }
        ptrace(PTRACE_CONT, child, 0, 0);
    }
}

/* Returns the status of the program. */
static int record(pid_t program) {
    int status, begun = 0;
    pid_t pid;
    while ((pid = waitpid(-1, &status, __WALL)) > 0) {
        if (!WIFSTOPPED(status)) {
            if (pid == program)
                return status;
            continue;
        }
        int event = status >> 16, signal = WSTOPSIG(status);
        unsigned long child;
        if (event == PTRACE_EVENT_EXEC && pid != program) {
            ptrace(PTRACE_DETACH, pid, 0, 0);
            continue;
        }
        if (event == PTRACE_EVENT_EXEC)
            begun = 1;
        else if (event && !ptrace(PTRACE_GETEVENTMSG, pid, 0, &child) && count < MOST)
            children[count++] = child;
        unsigned long at = address(pid);
        if (begun && at < END)
            executed[at] = 1;
        /* A child begins with SIGSTOP. */
        int ours = event || signal == SIGTRAP || signal == SIGSTOP;
        ptrace(PTRACE_SINGLESTEP, pid, 0, ours ? 0 : signal);
    }
    return -1;
}

int main(int words, char **arguments) {
    if (words < 3)
        return 2;
    /* On one processor: to wake a process on another one takes several times as long as a step. */
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    if (sched_setaffinity(0, sizeof one, &one))
        return 2;
    pid_t program = fork();
    if (program == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        execv(arguments[2], arguments + 2);
        _exit(127);
    }
    int status;
    long options = PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    if (waitpid(program, &status, 0) != program || ptrace(PTRACE_SETOPTIONS, program, 0, options))
        return 2;
    ptrace(PTRACE_CONT, program, 0, 0);
    status = record(program);
    for (int child = 0; child < count; child++)
        release(children[child]);
    FILE *file = fopen(arguments[1], "w");
    if (!file)
        return 2;
    for (unsigned long at = 0; at < END; at++)
        if (executed[at])
            fprintf(file, "%lx\n", at);
    return fclose(file) == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
}
