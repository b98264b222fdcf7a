#include "check.h"

/* Two blocks of 8 bytes that are alive together, and a fast bank that holds one: the one that is touched most. */
void test_banks(void) {
    sublet_block blocks[] = {{.start = 0, .end = 2, .size = 8}, {.start = 1, .end = 3, .size = 8}};
    size_t n = COUNT(blocks);
    sublet_bank banks[] = {{.capacity = 8, .cost = 1}, {.capacity = 64, .cost = 4, .alignment = 16}};
    sublet_bank_use uses[] = {{.touched = 10}, {.touched = 100}};
    sublet_banks_params params = {
        .struct_size = sizeof params, .bank_count = COUNT(banks), .banks = banks, .uses = uses};
    sublet_layout layout;
    WORKS(sublet_place_banks_workspace(n, &layout, &error));
    void *workspace = lend(layout);
    size_t size = layout.size;
    sublet_spot spots[2];
    sublet_banks_cost cost = {.struct_size = sizeof cost};
    WORKS(sublet_place_banks(blocks, n, &params, workspace, size, spots, &cost, &error));
    CHECK(cost.cost == 140 && cost.lower_bound == 140);
    CHECK(spots[0].bank == 1 && spots[0].offset == 0 && spots[1].bank == 0 && spots[1].offset == 0);

    /* If block 0 may lie only in the fast bank, block 1 goes to the slow one. If neither may lie in the fast bank, both
     * are in the slow one. */
    uses[0].banks = 1;
    WORKS(sublet_place_banks(blocks, n, &params, workspace, size, spots, NULL, &error));
    CHECK(spots[0].bank == 0 && spots[1].bank == 1);
    uses[0].banks = uses[1].banks = 2;
    WORKS(sublet_place_banks(blocks, n, &params, workspace, size, spots, &cost, &error));
    CHECK(cost.cost == 440 && spots[0].bank == 1 && spots[1].bank == 1);
    CHECK(spots[0].offset % 16 == 0 && spots[1].offset % 16 == 0 && spots[0].offset != spots[1].offset);

    /* A block that fits nowhere: it is too large, may lie only in a bank that does not exist, or there are no banks. */
    blocks[1].size = 65;
    FAILS(SUBLET_STATUS_NO_BANK_FITS, 1, 65, 64,
          sublet_place_banks(blocks, n, &params, workspace, size, spots, &cost, &error));
    CHECK(cost.cost == 440);
    blocks[1].size = 8;
    uses[1].banks = (uint64_t)1 << 40;
    FAILS(SUBLET_STATUS_NO_BANK_FITS, 1, 8, 0,
          sublet_place_banks(blocks, n, &params, workspace, size, spots, &cost, &error));
    uses[1].banks = 0;
    params.bank_count = 0;
    CHECK(sublet_place_banks(blocks, n, &params, workspace, size, spots, NULL, &error) ==
          SUBLET_STATUS_NO_BANK_FITS);
    WORKS(sublet_place_banks(NULL, 0, &params, workspace, size, NULL, &cost, &error));
    CHECK(cost.cost == 0 && cost.lower_bound == 0);

    params.bank_count = 33;
    FAILS(SUBLET_STATUS_LENGTH_OVERFLOW, 2, 32, 33,
          sublet_place_banks(blocks, n, &params, workspace, size, spots, &cost, &error));
    params.bank_count = COUNT(banks);
    banks[1].alignment = 12;
    FAILS(SUBLET_STATUS_ALIGNMENT, UINT32_MAX, 0, 12,
          sublet_place_banks(blocks, n, &params, workspace, size, spots, &cost, &error));
    banks[1].alignment = 0;
    params.uses = NULL;
    FAILS(SUBLET_STATUS_MISSING_FIELD, 2, 0, offsetof(sublet_banks_params, uses),
          sublet_place_banks(blocks, n, &params, workspace, size, spots, &cost, &error));
    params.uses = uses;
    params.banks = ODD(banks);
    FAILS(SUBLET_STATUS_MISALIGNED_FIELD, 2, 8, offsetof(sublet_banks_params, banks),
          sublet_place_banks(blocks, n, &params, workspace, size, spots, &cost, &error));
    params.banks = workspace;
    FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 3, 0, 2,
          sublet_place_banks(blocks, n, &params, workspace, size, spots, &cost, &error));
    params.banks = banks;
    FAILS(SUBLET_STATUS_WORKSPACE_TOO_SMALL, 3, size, size - 8,
          sublet_place_banks(blocks, n, &params, workspace, size - 8, spots, &cost, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 5, 0, 0,
          sublet_place_banks(blocks, n, &params, workspace, size, NULL, &cost, &error));
    FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 5, 0, 2,
          sublet_place_banks(blocks, n, &params, workspace, size, (sublet_spot *)(void *)uses, &cost, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 1, 0, 0, sublet_place_banks_workspace(n, NULL, &error));
    CHECK(sublet_place_banks_workspace(SIZE_MAX, &layout, &error) == SUBLET_STATUS_LENGTH_OVERFLOW);
    free(workspace);
}
