/* Reads kotekan's chordMetadata and says what it makes of it, for a comparison with a reader that is not
 * ours.
 *
 * Standard input: u32 length, u64 bytes of the frame, so many bytes of metadata, again and again. A line
 * for each: "refused: why", or the fields as "key:v,v,..." and, behind a tab, the array that the frame is
 * for `replay` and `receive`, or "refused: why". */
#include "formats/kotekan/kotekan_array.h"
#include "formats/kotekan/kotekan_raw.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void print_refusal(const struct br_error *error)
{
    fputs("refused: ", stdout);
    for (const char *c = error->text; *c != '\0'; c++) putchar(*c >= ' ' && *c <= '~' ? *c : '?');
}

static void print(const struct chord_metadata *m)
{
    printf("type:%s dims:", chord_type_name(m->type));
    for (int i = 0; i < m->dims; i++) printf("%s=%d,", m->dim_name[i], m->dim[i]);
    printf(" name:%s counter:%d sample0:%" PRId64 " coarse:", m->name, m->frame_counter, m->sample0_offset);
    for (int i = 0; i < m->nfreq; i++) printf("%d,", m->coarse_freq[i]);
    fputs(" upchan:", stdout);
    for (int i = 0; i < m->nfreq; i++) printf("%d,", m->upchan_factor[i]);
    fputs(" half:", stdout);
    for (int i = 0; i < m->nfreq; i++) printf("%" PRId64 ",", m->half_fpga_sample0[i]);
    fputs(" step:", stdout);
    for (int i = 0; i < m->nfreq; i++) printf("%d,", m->time_downsampling[i]);
}

/* As the readers choose: E as the F-engine gives it, else an array. */
static void print_array(const struct chord_metadata *m)
{
    struct kotekan_array a;
    struct kotekan_field f;
    struct br_error plain = {0}, error = {0};
    if (kotekan_raw_field(m, "peer", &f, &plain) == BR_OK) {
        printf("E first:%" PRIu64 " step:1 factor:1 time:%" PRIu64 " freq:%" PRIu64 " pol:%" PRIu64
               " dish:%" PRIu64,
               f.first, f.samples, f.nfreq, f.npol, f.ndish);
        return;
    }
    if (kotekan_array_describe(&a, m, "peer", &error) != BR_OK) {
        print_refusal(&error);
        return;
    }
    printf("array first:%" PRIu64 " step:%u factor:%u", a.first, a.downsample, a.factor);
    for (unsigned i = 0; i < a.array.naxes; i++)
        printf(" %s:%zu", a.array.axis[i].name, a.array.axis[i].length);
}

int main(void)
{
    static uint8_t bytes[CHORD_METADATA_BYTES];
    static struct chord_metadata m;
    uint32_t length;
    uint64_t frame;
    while (fread(&length, sizeof length, 1, stdin) == 1) {
        struct br_error error = {0};
        if (fread(&frame, sizeof frame, 1, stdin) != 1 || length > sizeof bytes ||
            fread(bytes, 1, length, stdin) != length)
            return 1;
        if (chord_metadata_decode(&m, bytes, length, frame, "peer", &error) == BR_OK) {
            print(&m);
            putchar('\t');
            print_array(&m);
        } else {
            print_refusal(&error);
        }
        putchar('\n');
    }
    return 0;
}
