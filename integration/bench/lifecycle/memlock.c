/*
 * A library to preload where even root may not raise the limit of locked memory. Old runtimes raise it before they load
 * the program for devices, and give up if they cannot. Linux has not counted such programs since 5.11.
 *
 *     cc -O2 -shared -fPIC -o memlock.so memlock.c
 */

#define _GNU_SOURCE
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

int setrlimit(__rlimit_resource_t resource, const struct rlimit *limit)
{
	if (resource == RLIMIT_MEMLOCK)
		return 0;
	return syscall(SYS_prlimit64, 0, resource, limit, NULL);
}
