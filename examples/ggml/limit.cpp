// Graphs within a limit: limit.so, preloaded into a program that trains by ggml-opt, or any that allocates its graphs by a
// ggml_backend_sched with one backend. With GGML_SUBLET_LIMIT, in MiB, a graph that needs more beside its weights is rewritten
// before memory is reserved for it: nodes run in another order, and values are dropped and computed again, by clones of the
// nodes that made them. The results have the same bits. A graph that comes again is not fitted again.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "sublet_fit.hpp"

// Exported by libggml-base, in no public header: whether a node may be written over what it reads.
extern "C" bool ggml_op_can_inplace(ggml_op op);

namespace {

bool is_view(const ggml_tensor *t) {
    return t->op == GGML_OP_RESHAPE || t->op == GGML_OP_VIEW || t->op == GGML_OP_PERMUTE || t->op == GGML_OP_TRANSPOSE;
}

// The tensor whose memory this one is in.
ggml_tensor *owner(ggml_tensor *t) { return t->view_src ? t->view_src : t; }

bool is_external(const ggml_tensor *owner) { return owner->data || owner->buffer; }

// Whether ggml's allocator lets a node write over this source, if nothing else needs that.
bool is_over(const ggml_tensor *node, const ggml_tensor *source) {
    return ggml_op_can_inplace(node->op) && source && !source->view_src && source->type == node->type && ggml_are_same_shape(source, node);
}

// What a node costs, in units that are alike for all nodes: of a product its multiplications, else the bytes it moves.
uint64_t price(const ggml_tensor *node) {
    uint64_t bytes = ggml_nbytes(node);
    for (const ggml_tensor *s : node->src) bytes += s ? ggml_nbytes(s) : 0;
    const bool product = node->op == GGML_OP_MUL_MAT || node->op == GGML_OP_OUT_PROD;
    const int64_t inner = product ? node->src[0]->ne[node->op == GGML_OP_OUT_PROD] : 0;
    return bytes / 8 + static_cast<uint64_t>(inner * ggml_nelements(node)) / 32 + 1;
}

// A graph as a trace: its nodes but for views are the operators, and what owns memory is a block.
class described {
    std::map<const ggml_tensor *, uint32_t> numbers_;
    std::vector<sublet_tensor> tensors_;
    std::vector<sublet_node> operators_;
    std::vector<uint32_t> operands_;

    uint32_t number(ggml_tensor *of, bool external) {
        const auto [found, is_new] = numbers_.try_emplace(of, static_cast<uint32_t>(tensors_.size()));
        const bool output = of->flags & GGML_TENSOR_FLAG_OUTPUT;
        // Weights take no part of the compute buffer; that they are written is what counts.
        if (is_new)
            tensors_.push_back({external ? 1 : ggml_nbytes(of),
                                external ? SUBLET_STORAGE_PERSISTENT : output ? SUBLET_STORAGE_ITERATION : SUBLET_STORAGE_TRANSIENT, 0});
        return found->second;
    }

  public:
    std::vector<ggml_tensor *> nodes;      // by operator
    std::set<const ggml_tensor *> results; // nodes that no other reads, and outputs
    sublet::trace trace;

    explicit described(ggml_cgraph *graph) {
        for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
            ggml_tensor *node = ggml_graph_node(graph, i);
            if (is_view(node) || node->op == GGML_OP_NONE) continue;
            sublet_node made = {price(node), 0, 0, 1};
            bool updates = false;
            for (ggml_tensor *s : node->src) {
                if (!s) continue;
                operands_.push_back(number(owner(s), is_external(owner(s))));
                updates = updates || owner(s) == owner(node);
                ++made.input_count;
            }
            operands_.push_back(number(owner(node), is_external(owner(node))));
            uint32_t flags = SUBLET_OPERATOR_UNORDERED | (is_over(node, node->src[0]) ? SUBLET_OPERATOR_IN_PLACE : 0);
            if (updates || is_external(owner(node)) || node->view_src) flags = SUBLET_OPERATOR_ONCE;
            trace.operators.push_back({flags, 0, 0});
            operators_.push_back(made);
            nodes.push_back(node);
            results.insert(node);
        }
        for (ggml_tensor *node : nodes)
            for (ggml_tensor *s : node->src)
                if (s && !(owner(s)->flags & GGML_TENSOR_FLAG_OUTPUT)) results.erase(owner(s));
        auto told = sublet::params<sublet_graph>();
        told.tensors = tensors_.data();
        told.tensor_count = tensors_.size();
        told.nodes = operators_.data();
        told.node_count = operators_.size();
        told.operands = operands_.data();
        told.operand_count = operands_.size();
        sublet_error error;
        sublet_layout layout;
        sublet::check(sublet_graph_rows_workspace(&told, &layout, &error), error);
        const auto workspace = sublet::detail::workspace(layout);
        size_t rows = 4 * tensors_.size() + 3 * nodes.size() + operands_.size();
        trace.rows.resize(rows);
        sublet::check(sublet_graph_rows(&told, workspace.get(), layout.size, trace.rows.data(), rows, &rows, &trace.block_count, &error), error);
        trace.rows.resize(rows);
    }
};

// Makes the nodes of a schedule: what was dropped is made again by a clone, which later readers read.
class clones {
    ggml_context *ctx_;
    std::map<ggml_tensor *, ggml_tensor *> now_;                                // where the value of an owner is, if in a clone
    std::map<std::pair<ggml_tensor *, ggml_tensor *>, ggml_tensor *> views_; // of a clone, by view and clone

    ggml_tensor *clone(ggml_tensor *of) {
        ggml_tensor *made = ggml_dup_tensor(ctx_, of);
        made->op = of->op;
        std::memcpy(made->op_params, of->op_params, sizeof made->op_params);
        std::memcpy(made->nb, of->nb, sizeof made->nb);
        ggml_format_name(made, "%s (again)", of->name);
        return made;
    }

    ggml_tensor *current(ggml_tensor *t) {
        const auto moved = now_.find(owner(t));
        if (moved == now_.end()) return t;
        if (owner(t) == t) return moved->second;
        if (!is_view(t)) return t;
        ggml_tensor *&view = views_[{t, moved->second}];
        if (!view) {
            view = clone(t);
            view->view_src = moved->second;
            view->view_offs = t->view_offs;
            view->src[0] = current(t->src[0]);
        }
        return view;
    }

  public:
    int count = 0;

    explicit clones(ggml_context *ctx) : ctx_(ctx) {}

    ggml_tensor *first(ggml_tensor *node) {
        for (ggml_tensor *&s : node->src)
            if (s) s = current(s);
        if (node->view_src && now_.count(node->view_src)) node->view_src = now_[node->view_src];
        return node;
    }

    ggml_tensor *again(ggml_tensor *node) {
        ggml_tensor *made = clone(node);
        for (int i = 0; i < GGML_MAX_SRC; ++i)
            if (node->src[i]) made->src[i] = current(node->src[i]);
        ++count;
        return now_[node] = made;
    }
};

using context = std::unique_ptr<ggml_context, decltype(&ggml_free)>;

// The clones of the graph that was rewritten last; memory is reserved for one at a time.
context kept{nullptr, ggml_free};

constexpr double mib = 1048576;

const sublet::fitted &fitted_to(const sublet::trace &trace, uint64_t limit) {
    using key = std::pair<uint64_t, std::vector<sublet_row>>;
    static std::vector<std::pair<key, sublet::fitted>> known;
    for (const auto &[of, fitted] : known)
        if (of.first == limit && of.second.size() == trace.rows.size() &&
            std::memcmp(of.second.data(), trace.rows.data(), trace.rows.size() * sizeof trace.rows[0]) == 0)
            return fitted;
    auto params = sublet::params<sublet_fit_params>();
    params.means = SUBLET_MEANS_RECOMPUTE | SUBLET_MEANS_IN_PLACE | SUBLET_MEANS_ORDER;
    params.alignment = 32;
    sublet::fitted made;
    try {
        made = sublet::fit(trace, limit, params);
    } catch (const sublet::exception &e) {
        if (e.status() != SUBLET_STATUS_OVER_LIMIT) throw;
        made = sublet::fit(trace, e.error().needed, params);
    }
    known.emplace_back(key(limit, trace.rows), std::move(made));
    return known.back().second;
}

// The nodes of a schedule as a graph. How many of them are clones is added to `count`.
ggml_cgraph *rewritten(const described &told, const sublet::fitted &fitted, int &count) {
    const size_t most = 4 * fitted.rows.size();
    kept = context(ggml_init({most * ggml_tensor_overhead() + ggml_graph_overhead_custom(most, false), nullptr, true}), ggml_free);
    clones made(kept.get());
    std::vector<ggml_tensor *> order;
    const sublet_row *last = nullptr;
    for (const sublet_row &row : fitted.rows) {
        const bool begins = !last || last->op != row.op || last->op_kind != row.op_kind;
        const bool access = row.event == SUBLET_EVENT_READ || row.event == SUBLET_EVENT_WRITE;
        if (!access || row.op_kind == SUBLET_OP_KIND_NONE || row.op >= told.nodes.size()) continue;
        last = &row;
        ggml_tensor *node = told.nodes[row.op];
        if (begins) order.push_back(row.op_kind == SUBLET_OP_KIND_RERUN ? made.again(node) : made.first(node));
    }
    // A first run whose readers all read a clone is left out: ggml would never free its memory.
    std::set<const ggml_tensor *> read;
    for (auto node = order.rbegin(); node != order.rend(); ++node) {
        const bool needed = told.results.count(*node) || (*node)->view_src || is_external(*node) || read.count(*node);
        for (ggml_tensor *s : (*node)->src)
            if (needed && s) read.insert(owner(s));
        if (!needed) *node = nullptr;
    }
    ggml_cgraph *graph = ggml_new_graph_custom(kept.get(), most, false);
    for (ggml_tensor *node : order)
        if (node) ggml_build_forward_expand(graph, node);
    count = made.count;
    return graph;
}

// What ggml's allocator takes for a graph; no memory is given out.
size_t reserved(ggml_cgraph *graph) {
    ggml_gallocr_t allocator = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    size_t size = 0;
    ggml_gallocr_reserve_n_size(allocator, graph, nullptr, nullptr, &size);
    ggml_gallocr_free(allocator);
    return size;
}

// ggml's allocator writes over fewer sources than a schedule does: what it takes more is taken off the schedule's limit.
ggml_cgraph *within(ggml_cgraph *graph, uint64_t limit) {
    const described told(graph);
    std::vector<std::pair<ggml_tensor *, ggml_tensor>> given;
    for (ggml_tensor *node : told.nodes) given.emplace_back(node, *node);
    const size_t before = reserved(graph);
    if (before <= limit) return graph;
    uint64_t target = limit;
    for (int tries = 1;; ++tries) {
        for (const auto &[node, as] : given) *node = as;
        const sublet::fitted &fitted = fitted_to(told.trace, target);
        int clones = 0;
        ggml_cgraph *made = rewritten(told, fitted, clones);
        const size_t size = reserved(made);
        if (size > limit && tries < 4 && fitted.found.peak <= target && size - limit < target) {
            target -= size - limit;
            continue;
        }
        std::fprintf(stderr, "limit: %.2f MiB, %.2f without; %d of %zu nodes run twice%s\n", static_cast<double>(size) / mib,
                     static_cast<double>(before) / mib, clones, told.nodes.size(), size > limit ? "; NOT within the limit" : "");
        return made;
    }
}

}  // namespace

// In place of the function in libggml-base, which it calls.
extern "C" bool ggml_backend_sched_alloc_graph(ggml_backend_sched_t sched, ggml_cgraph *graph) {
    static const auto next = reinterpret_cast<decltype(&ggml_backend_sched_alloc_graph)>(dlsym(RTLD_NEXT, "ggml_backend_sched_alloc_graph"));
    const char *limit = std::getenv("GGML_SUBLET_LIMIT");
    if (!limit || std::atof(limit) <= 0) return next(sched, graph);
    try {
        return next(sched, within(graph, static_cast<uint64_t>(std::atof(limit) * mib)));
    } catch (const std::exception &e) {
        std::fprintf(stderr, "limit: the graph stays as it is: %s\n", e.what());
        return next(sched, graph);
    }
}
