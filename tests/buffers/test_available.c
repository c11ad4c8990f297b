/* How much memory can still be had, in made-up /proc and /sys trees: of a machine, and of control groups. */
#include "buffers/available.h"
#include "tests/buffers/plain.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static char root[64];

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/beamring_available_XXXXXX");
    return mkdtemp(root) != NULL ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

/* Writes root/PATH, and the folders on the way. */
static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0755);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void expect(size_t bytes, const char *words)
{
    char who[128];
    assert_int_equal(br_memory_available(root, who, sizeof who), bytes);
    if (strstr(who, words) == NULL) fail_msg("'%s' does not say '%s'", who, words);
}

static void the_machine(void **state)
{
    (void)state;
    expect(SIZE_MAX, "the machine");
    put("proc/meminfo",
        "MemTotal: 8000000 kB\nMemAvailable: 2048 kB\nSwapTotal: 4096 kB\nSwapFree: 1024 kB\n");
    expect(3 * MIB, "the machine");
    put("proc/self/cgroup", "1:cpu:/\n0::/\n"); /* the root group has no limit */
    expect(3 * MIB, "the machine");
    put("proc/meminfo", "MemTotal: 8000000 kB\n");
    expect(SIZE_MAX, "the machine");
    put("proc/meminfo", "MemAvailable: 8388608 kB\n");
}

static void version_2(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/node/job\n");
    put("sys/fs/cgroup/node/job/memory.max", "max\n");
    put("sys/fs/cgroup/node/job/memory.current", "1048576\n");
    expect((size_t)8 << 30, "the machine");
    put("sys/fs/cgroup/node/job/memory.max", "104857600\n"); /* 100 MiB, of which 1 is used */
    expect(99 * MIB, "the control group /node/job allows");
    put("sys/fs/cgroup/node/job/memory.swap.max", "10485760\n");
    put("sys/fs/cgroup/node/job/memory.swap.current", "2097152\n");
    expect((99 + 8) * MIB, "/node/job");
    put("sys/fs/cgroup/node/memory.max",
        "73400320\n"); /* the group above is tighter: 70 - 60 + 20 of cache */
    put("sys/fs/cgroup/node/memory.current", "62914560\n");
    put("sys/fs/cgroup/node/memory.stat", "anon 41943040\ninactive_file 20971520\nactive_file 0\n");
    expect(30 * MIB, "the control group /node allows");
    put("sys/fs/cgroup/memory.max", "20971520\n"); /* of a container that sees only its own root */
    put("sys/fs/cgroup/memory.current", "19922944\n");
    expect(MIB, "the control group / allows");
    put("sys/fs/cgroup/memory.current", "20972000\n"); /* over the limit already */
    expect(0, "the control group / allows");
}

static void version_1(void **state)
{
    (void)state;
    put("proc/self/cgroup", "5:cpuset:/other\n4:cpu,memory:/job\n0::/elsewhere\n");
    put("sys/fs/cgroup/memory.max", "max\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "73400320\n");
    expect((size_t)8 << 30, "the machine");
    put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "41943040\n");
    put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "20971520\n");
    put("sys/fs/cgroup/memory/job/memory.stat", "cache 1\ntotal_inactive_file 5242880\n");
    expect(25 * MIB, "the control group /job allows");
    put("proc/self/cgroup", "4:cpu:/job\n"); /* memory is not controlled */
    expect((size_t)8 << 30, "the machine");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_machine), cmocka_unit_test(version_2),
                                       cmocka_unit_test(version_1)};
    return cmocka_run_group_tests_name("memory that can be had", tests, make_root, remove_root);
}
