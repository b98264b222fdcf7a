/* The control: linked into libggml-base with --wrap=sublet_place_chunks, it puts one block over another that is alive. */
#include <sublet.h>

sublet_status __real_sublet_place_chunks(const sublet_block *, size_t, const sublet_chunks_params *, void *, size_t,
                                         sublet_spot *, sublet_chunks *, sublet_error *);

sublet_status __wrap_sublet_place_chunks(const sublet_block *blocks, size_t count, const sublet_chunks_params *params,
                                         void *workspace, size_t size, sublet_spot *spots, sublet_chunks *chunks,
                                         sublet_error *error) {
    sublet_status status = __real_sublet_place_chunks(blocks, count, params, workspace, size, spots, chunks, error);
    for (size_t i = count / 2; i < count; ++i) {
        for (size_t j = i + 1; j < count && blocks[j].start < blocks[i].end; ++j) {
            if (blocks[i].start < blocks[j].start && blocks[j].size <= blocks[i].size) {
                spots[j] = spots[i];
                return status;
            }
        }
    }
    return status;
}
