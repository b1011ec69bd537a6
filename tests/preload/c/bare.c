/* A program that is linked statically and knows the kernel's socket alone: bare upper | count BYTES. Standard input and
 * output are the connection. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned char pattern(uint64_t at) { return (unsigned char)((at * 2654435761u) >> 13); }

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "upper") == 0) {
        char c;
        while (read(0, &c, 1) == 1) {
            if (c >= 'a' && c <= 'z') c -= 32;
            if (write(1, &c, 1) != 1) return 1;
            if (c == '\n') return 0;
        }
        return 1;
    }
    if (argc == 3) {
        uint64_t left = strtoull(argv[2], NULL, 10), at = 0;
        static unsigned char bytes[65536];
        while (at < left) {
            ssize_t count = read(0, bytes, sizeof bytes < left - at ? sizeof bytes : left - at);
            if (count <= 0) return 2;
            for (ssize_t i = 0; i < count; i++)
                if (bytes[i] != pattern(at + (uint64_t)i)) return 3;
            at += (uint64_t)count;
        }
        return write(1, "k", 1) == 1 ? 0 : 4;
    }
    return 5;
}
