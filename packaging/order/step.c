/* Writes the addresses of all instructions that a program executes to a file, in order and each once.
 *
 *     step FILE PROGRAM [ARGUMENTS]
 *
 * Records only code below 16 MB, where the linker places a program that has a fixed address. Does not follow children. */
#include <elf.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define END (16UL << 20)
static char executed[END];

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

int main(int count, char **arguments) {
    if (count < 3)
        return 2;
    pid_t pid = fork();
    if (pid == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        execv(arguments[2], arguments + 2);
        _exit(127);
    }
    int status;
    while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
        unsigned long at = address(pid);
        if (at < END)
            executed[at] = 1;
        int signal = WSTOPSIG(status);
        ptrace(PTRACE_SINGLESTEP, pid, 0, signal == SIGTRAP ? 0 : signal);
    }
    FILE *file = fopen(arguments[1], "w");
    if (!file)
        return 2;
    for (unsigned long at = 0; at < END; at++)
        if (executed[at])
            fprintf(file, "%lx\n", at);
    return fclose(file) == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
}
