/* beamring-layouts - proves the layouts of the GPU kernels on the CPU: beamring-layouts [-v] [KERNEL...] */
#include "tools/layouts/check.h"

#include <string.h>

#define KERNEL(name) void layouts_##name(struct layouts *report);
LAYOUTS_KERNELS
#undef KERNEL

static const struct kernel {
    const char *name;
    void (*check)(struct layouts *report);
} kernels[] = {
#define KERNEL(name) {#name, layouts_##name},
    LAYOUTS_KERNELS
#undef KERNEL
    {NULL, NULL}};

static bool wanted(const char *name, int argc, char **argv)
{
    int names = 0;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-') continue;
        if (strcmp(argv[i], name) == 0) return true;
        names++;
    }
    return names == 0;
}

static int usage(const char *wrong)
{
    fprintf(
        stderr,
        "beamring-layouts: %s is neither a kernel nor an option; usage: beamring-layouts [-v] [KERNEL...], "
        "KERNEL one of",
        wrong);
    for (const struct kernel *k = kernels; k->name; k++) fprintf(stderr, " %s", k->name);
    fprintf(stderr, "\n");
    return 2;
}

int main(int argc, char **argv)
{
    bool verbose = false, good = true;
    for (int i = 1; i < argc; i++) {
        bool known = strcmp(argv[i], "-v") == 0;
        if (known) verbose = true;
        for (const struct kernel *k = kernels; k->name; k++) known = known || strcmp(argv[i], k->name) == 0;
        if (!known) return usage(argv[i]);
    }
    for (const struct kernel *k = kernels; k->name; k++) {
        if (!wanted(k->name, argc, argv)) continue;
        struct layouts report = {.out = stdout, .verbose = verbose};
        k->check(&report);
        if (!layouts_finish(&report)) good = false;
        printf("%s: %u variants, %u passes, %llu accesses, %u exceptions, %u failures\n", k->name,
               report.variants, report.passes, (unsigned long long)report.accesses, report.exceptions,
               report.failures);
    }
    return good ? 0 : 1;
}
