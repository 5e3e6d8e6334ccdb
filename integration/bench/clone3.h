/* The call of clone3 with a stack for the child. glibc 2.36 has no function for it. */

#include <linux/sched.h>
#include <sys/syscall.h>

/*
 * The child also returns from the system call, with the parent's registers but on its own stack. It
 * must therefore jump to `entry` before the compiler's code continues. The result is copied from its
 * register at once, before another call can overwrite it.
 */
static long clone3_call(struct clone_args *args, int (*entry)(void *), void *argument)
{
	long result;

#if defined(__x86_64__)
	register int (*r12)(void *) __asm__("r12") = entry;
	register void *r13 __asm__("r13") = argument;

	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "mov %%r13, %%rdi\n\t"
			 "call *%%r12\n\t"
			 "ud2\n"
			 "1:"
			 : "=a"(result)
			 : "a"(SYS_clone3), "D"(args), "S"(sizeof *args), "r"(r12), "r"(r13)
			 : "rcx", "r11", "memory", "cc");
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = SYS_clone3;
	register long x0 __asm__("x0") = (long)args;
	register long x1 __asm__("x1") = sizeof *args;
	register int (*x19)(void *) __asm__("x19") = entry;
	register void *x20 __asm__("x20") = argument;

	__asm__ volatile("svc 0\n\t"
			 "cbnz x0, 1f\n\t"
			 "mov x29, xzr\n\t"
			 "mov x30, xzr\n\t"
			 "mov x0, x20\n\t"
			 "br x19\n"
			 "1:"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x19), "r"(x20)
			 : "memory", "cc");
	result = x0;
#else
#error "clone3 is written for x86_64 and aarch64 only"
#endif
	return result;
}
