/*
 * A minimal program without libc and with few pages, so that a benchmark measures the start and not
 * the program. With an argument it writes a line before it exits.
 *
 *     cc -O2 -nostdlib -static -o tiny tiny.c
 */

#include <sys/syscall.h>

#if defined(__x86_64__)

/* The kernel leaves the argument count on top of the stack. */
__asm__(".globl _start\n"
	"_start:\n"
	"	xor %ebp, %ebp\n"
	"	mov (%rsp), %rdi\n"
	"	call entry\n");

static long call(long number, long a, long b, long c)
{
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c)
			 : "rcx", "r11", "memory");
	return result;
}

#elif defined(__aarch64__)

__asm__(".globl _start\n"
	"_start:\n"
	"	mov x29, xzr\n"
	"	mov x30, xzr\n"
	"	ldr x0, [sp]\n"
	"	b entry\n");

static long call(long number, long a, long b, long c)
{
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
	return x0;
}

#else
#error "the start of a program is written for x86_64 and aarch64 only"
#endif

__attribute__((noreturn, used)) void entry(long arguments)
{
	static const char line[] = "a line of output\n";
	long status = 0;

	if (arguments > 1 && call(SYS_write, 1, (long)line, sizeof line - 1) != sizeof line - 1)
		status = 1;
	for (;;)
		call(SYS_exit_group, status, 0, 0);
}
