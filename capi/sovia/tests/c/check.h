/* What the test programs share: a condition that does not hold ends the program with its place. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                                       \
	do {                                                                                              \
		if (!(what)) {                                                                            \
			fprintf(stderr, "%s:%d: %s (errno %s)\n", __FILE__, __LINE__, #what, strerror(errno)); \
			exit(1);                                                                          \
		}                                                                                         \
	} while (0)

#endif
