// models/template_scopes.cpp: which variables a scope hides although nothing was assigned to them yet.
// The reference decides when it compiles where a name is looked up: a name that a scope assigns before it reads it, and
// that no scope around it mentions, is a variable of that scope from its beginning, and undefined until it is assigned,
// even where the caller gave a variable of that name. So `{% for m in messages %}{{ x }}{% endfor %}{% set x = 1 %}`
// never prints the caller's x. The names that a body hides are stored with it, in the node's names.
// Source: behaviour asked of the reference (jinja2 3.1).
// Main path: models/template_parse -> [models/template_scopes] -> models/template_run
#include "template_tree.h"

#include <algorithm>
#include <unordered_map>

namespace duet {
namespace {

enum class origin : uint8_t { unknown, outside, hidden, argument };

struct name_state {
    origin from = origin::unknown;
    bool is_assigned = false;
};

class scope_analysis {
  public:
    void visit_root(template_node* body) {
        visit_scope(body, {}, [&] { visit(body); });
    }

  private:
    struct frame {
        frame* outer;
        std::unordered_map<int32_t, name_state> names;
        std::vector<std::pair<int32_t, name_state>> log;  // earlier states, so that a branch can be undone
    };

    bool is_known_outside(int32_t name) const {
        for (const frame* f = now_->outer; f; f = f->outer)
            if (const auto at = f->names.find(name); at != f->names.end() && at->second.from != origin::unknown)
                return true;
        return false;
    }

    void change(int32_t name, name_state state) {
        name_state& s = now_->names[name];
        now_->log.emplace_back(name, s);
        s = state;
    }

    void read(int32_t name) {
        const name_state s = now_->names[name];
        if (s.from == origin::unknown && !is_known_outside(name)) change(name, {origin::outside, s.is_assigned});
    }

    void write(int32_t name) {
        const name_state s = now_->names[name];
        if (s.from != origin::unknown) return change(name, {s.from, true});
        change(name, {is_known_outside(name) ? origin::outside : origin::hidden, true});
    }

    void visit_target(const template_node* target, bool is_argument) {
        if (target->kind == node_kind::tuple)
            for (const template_node* kid : target->kids) visit_target(kid, is_argument);
        else if (target->kind == node_kind::member) read(target->name);
        else if (is_argument) change(target->name, {origin::argument, false});
        else write(target->name);
    }

    // A scope of its own: its arguments, then what run visits. body gets the names it hides.
    template <class Run> void visit_scope(template_node* body, const std::vector<int32_t>& arguments, Run run) {
        frame inner{now_, {}, {}};
        now_ = &inner;
        for (int32_t name : arguments) change(name, {origin::argument, false});
        run();
        for (const auto& [name, state] : inner.names)
            if (state.from == origin::hidden) body->names.push_back(name);
        now_ = inner.outer;
    }

    // The branches of an `if` do not see each other's names. What only some of them assign keeps its value from
    // outside.
    void visit_if(const template_node* n) {
        using states = std::vector<std::pair<int32_t, name_state>>;
        states branches[3];  // the first, all `elif` together, `else`
        visit(n->kids[0]);
        const size_t n_pairs = n->kids.size() / 2;
        std::unordered_map<int32_t, int> n_assigned;
        for (int branch = 0; branch < 3; branch++) {
            const size_t begin = now_->log.size();
            if (branch == 0) visit(n->kids[1]);
            for (size_t i = 1; branch == 1 && i < n_pairs; i++) {
                visit(n->kids[2 * i]);
                visit(n->kids[2 * i + 1]);
            }
            if (branch == 2 && n->kids.size() % 2 == 1) visit(n->kids.back());
            for (size_t i = now_->log.size(); i-- > begin;) {  // undone; the last state of each name comes first
                const auto [name, before] = now_->log[i];
                name_state& s = now_->names[name];
                branches[branch].emplace_back(name, s);
                s = before;
            }
            now_->log.resize(begin);
            unite(&branches[branch]);
            for (const auto& [name, state] : branches[branch])
                n_assigned[name] += state.is_assigned && !now_->names[name].is_assigned;
        }
        for (const states& branch : branches)
            for (const auto& [name, state] : branch)
                change(name, {state.from, state.is_assigned || now_->names[name].is_assigned});
        for (const auto& [name, n_branches] : n_assigned)
            if (n_branches > 0 && n_branches < 3) change(name, {origin::outside, true});
    }

    // Keeps the first entry of each name.
    static void unite(std::vector<std::pair<int32_t, name_state>>* states) {
        auto by_name = [](const auto& a, const auto& b) { return a.first < b.first; };
        std::stable_sort(states->begin(), states->end(), by_name);
        states->erase(std::unique(states->begin(), states->end(),
                                  [](const auto& a, const auto& b) { return a.first == b.first; }),
                      states->end());
    }

    void visit_macro(template_node* n) {
        visit_scope(n->kids[0], n->names, [&] {
            for (size_t i = 1; i < n->kids.size(); i++) visit(n->kids[i]);
            visit(n->kids[0]);
        });
    }

    void visit_loop(template_node* n) {
        visit(n->kids[1]);
        visit_scope(n->kids[3], {kNameLoop}, [&] {
            visit_target(n->kids[0], true);
            visit(n->kids[3]);
        });
        if (n->kids[4]) visit_scope(n->kids[4], {}, [&] { visit(n->kids[4]); });
    }

    void visit_with(template_node* n) {
        for (size_t i = 1; i + 1 < n->kids.size(); i += 2) visit(n->kids[i]);
        visit_scope(n->kids.back(), {}, [&] {
            for (size_t i = 0; i + 1 < n->kids.size(); i += 2) visit_target(n->kids[i], true);
            visit(n->kids.back());
        });
    }

    void visit_body(template_node* body) {
        visit_scope(body, {}, [&] { visit(body); });
    }

    void visit(template_node* n) {
        if (!n) return;
        switch (n->kind) {
        case node_kind::name: return read(n->name);
        case node_kind::assign: visit(n->kids[1]); return visit_target(n->kids[0], false);
        case node_kind::capture:
            if (n->kids[0]) visit_target(n->kids[0], false);
            else visit(n->kids[1]);
            return visit_body(n->kids[2]);
        case node_kind::if_chain: return visit_if(n);
        case node_kind::for_loop: return visit_loop(n);
        case node_kind::with: return visit_with(n);
        case node_kind::macro: write(n->name); return visit_macro(n);
        case node_kind::call_block: visit(n->kids[0]); return visit_macro(n->kids[1]);
        case node_kind::autoescape: visit(n->kids[0]); return visit_body(n->kids[1]);
        default: break;
        }
        for (template_node* kid : n->kids) visit(kid);
        visit(n->star);
        visit(n->star_star);
    }

    frame* now_ = nullptr;
};

}  // namespace

void find_hidden_names(template_tree* tree) { scope_analysis().visit_root(tree->root); }

}  // namespace duet
