#include "formats/pieces/reading.h"

#include "formats/common/fileio.h"
#include "formats/common/hints.h"

enum { FAR = 1 << 20 };

int reading_check_first(struct caller *caller, const char *path, uint64_t first)
{
    struct br_error error = {0};
    if (hints_first(caller->hints, path, first, &error) == BR_OK) return BR_OK;
    return caller_refuse(caller, "%s", error.text);
}

int reading_coding(struct caller *caller, const char *path, const char *key, const char *own,
                   const char *wanted, enum coding *coding)
{
    struct br_stream_hints hints = *caller->hints;
    struct br_error error = {0};
    if (wanted != NULL) hints.coding = wanted;
    if (hints_coding(&hints, path, key, &own, &error) != BR_OK)
        return caller_refuse(caller, "%s", error.text);
    *coding = coding_from_name(own);
    return BR_OK;
}

int reading_read(struct caller *caller, int fd, const char *path, void *buffer, size_t length,
                 uint64_t offset)
{
    struct br_error error = {0};
    int status = fileio_read_all(fd, path, buffer, length, offset, &error);
    return status == BR_OK ? BR_OK : caller_fail(caller, status, "%s", error.text);
}

uint64_t reading_frame_samples(size_t row_bytes)
{
    uint64_t samples = 256;
    while (samples < 65536 && 2 * samples * row_bytes <= 1 << 20) samples *= 2;
    return samples;
}

bool reading_is_far(size_t frame_bytes)
{
    return frame_bytes > (size_t)FAR;
}
