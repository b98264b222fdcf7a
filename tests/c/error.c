#include "check.h"

/* Without an error of their own, these calls return a status only. */
static void misuse(sublet_error *e, char *text, size_t *needed) {
    CHECK(sublet_format_error(NULL, text, 8, needed) == SUBLET_STATUS_NULL_POINTER);
    CHECK(sublet_format_error(ODD(e), text, 8, needed) == SUBLET_STATUS_MISALIGNED_POINTER);
    CHECK(sublet_format_error(e, NULL, 8, needed) == SUBLET_STATUS_NULL_POINTER);
    CHECK(sublet_format_error(e, text, SIZE_MAX, needed) == SUBLET_STATUS_LENGTH_OVERFLOW);
    CHECK(sublet_format_error(e, text, 8, ODD(needed)) == SUBLET_STATUS_MISALIGNED_POINTER);
    CHECK(sublet_format_error(e, (char *)e, sizeof *e, needed) == SUBLET_STATUS_OVERLAPPING_BUFFERS);
}

/* A call refuses an error that lies in memory that it reads or writes, and does not write it. Right beside that memory
 * an error may lie. */
static void an_error_over_other_arguments(void) {
    sublet_block blocks[3] = {{.end = 4, .size = 100}, {.end = 4, .size = 200}, {.end = 4, .size = 300}};
    sublet_block kept[3];
    memcpy(kept, blocks, sizeof blocks);
    sublet_layout layout;
    WORKS(sublet_place_workspace(3, NULL, &layout, &error));
    char *workspace = lend(layout);
    uint64_t offsets[8] = {0};
    for (size_t at = 0; at < sizeof blocks; at += 8) {
        sublet_error *over = (void *)((char *)blocks + at);
        CHECK(sublet_place(blocks, 3, NULL, workspace, layout.size, offsets, NULL, over) == SUBLET_STATUS_OVERLAPPING_BUFFERS);
        CHECK(memcmp(blocks, kept, sizeof blocks) == 0);
    }
    for (size_t at = 0; at + sizeof error <= layout.size; at += 8) {
        sublet_error *over = (void *)(workspace + at);
        CHECK(sublet_place(blocks, 3, NULL, workspace, layout.size, offsets, NULL, over) == SUBLET_STATUS_OVERLAPPING_BUFFERS);
    }
    for (size_t at = 0; at < 3; ++at) {
        sublet_error *over = (void *)(offsets + at);
        CHECK(sublet_place(blocks, 3, NULL, workspace, layout.size, offsets, NULL, over) == SUBLET_STATUS_OVERLAPPING_BUFFERS);
    }
    CHECK(sublet_place(blocks, 3, NULL, workspace, layout.size, offsets, NULL, (void *)(offsets + 3)) == SUBLET_STATUS_OK);
    sublet_layout verifying;
    WORKS(sublet_verify_workspace(3, &verifying, &error));
    CHECK(verifying.size <= layout.size);
    WORKS(sublet_verify(blocks, 3, offsets, NULL, workspace, layout.size, NULL, &error));
    sublet_layout *told = (void *)offsets;
    CHECK(sublet_place_workspace(3, NULL, told, (void *)offsets) == SUBLET_STATUS_OVERLAPPING_BUFFERS);
    free(workspace);
}

void test_error(void) {
    an_error_over_other_arguments();

    const char *sentence = "blocks 3 and 7 are both alive at step 5 and share an address";
    sublet_error e = {SUBLET_STATUS_PLAN_OVERLAP, 3, 5, 7};
    char text[256];
    size_t needed = 0;
    CHECK(sublet_format_error(&e, text, sizeof text, &needed) == SUBLET_STATUS_OK);
    CHECK(needed == strlen(text) + 1 && strstr(text, sentence) != NULL);
    CHECK(sublet_format_error(&e, text, needed, NULL) == SUBLET_STATUS_OK);

    /* A question about the length alone. */
    size_t asked = 0;
    CHECK(sublet_format_error(&e, NULL, 0, &asked) == SUBLET_STATUS_OK && asked == needed);

    /* A buffer that is too short: the text is cut, and ends with a zero byte. */
    char cut[128];
    memset(cut, 'x', sizeof cut);
    CHECK(sublet_format_error(&e, cut, 10, &asked) == SUBLET_STATUS_BUFFER_TOO_SMALL && asked == needed);
    CHECK(strlen(cut) == 9 && memcmp(cut, text, 9) == 0 && cut[10] == 'x');
    memset(cut, 'x', sizeof cut);
    CHECK(sublet_format_error(&e, cut, needed - 1, NULL) == SUBLET_STATUS_BUFFER_TOO_SMALL);
    CHECK(strlen(cut) == needed - 2 && cut[needed - 1] == 'x');

    misuse(&e, text, &needed);

    /* Every error has a text, also one of numbers that mean nothing. */
    for (int32_t status = -2; status < 200; ++status) {
        for (uint64_t figure = 0; figure < 3; ++figure) {
            sublet_error any = {status, UINT32_MAX, figure == 1 ? UINT64_MAX : figure, figure == 2 ? UINT64_MAX : figure};
            CHECK(sublet_format_error(&any, text, sizeof text, &needed) == SUBLET_STATUS_OK);
            CHECK(strlen(text) > 5 && strlen(text) + 1 == needed);
        }
    }
}
