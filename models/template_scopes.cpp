// models/template_scopes.cpp: which variables a scope hides although nothing was assigned to them yet.
// The reference decides when it compiles where a name is looked up: a name that a scope assigns before it reads it, and
// that no scope around it mentions, is a variable of that scope from its beginning, and undefined until it is assigned,
// even where the caller gave a variable of that name. So `{% for m in messages %}{{ x }}{% endfor %}{% set x = 1 %}`
// never prints the caller's x. A name that is first assigned inside of an `if` keeps its value from outside.
// The names that a body hides are stored with it, in the node's names.
// Source: behaviour asked of the reference (jinja2 3.1).
// Main path: models/template_parse -> [models/template_scopes] -> models/template_run
#include "template_tree.h"

#include <unordered_map>

namespace duet {

int32_t template_tree::name_id(std::string_view name) {
    const auto [at, is_new] = name_index.try_emplace(std::string(name), (int32_t)names.size());
    if (is_new) names.emplace_back(name);
    return at->second;
}

namespace {

class scope_analysis {
  public:
    // A scope of its own: its arguments, then what run visits. body gets the names it hides.
    template <class Run> void visit_scope(template_node* body, const std::vector<int32_t>& arguments, Run run) {
        scope here{now_};
        now_ = &here;
        for (int32_t name : arguments) here.is_hidden[name] = false;
        run();
        for (size_t i = 0; i < here.inner.size(); i++) visit_inner(here.inner[i]);
        for (const auto& [name, is_hidden] : here.is_hidden)
            if (is_hidden) body->names.push_back(name);
        now_ = here.outer;
    }

    void visit_body(template_node* body) {
        visit_scope(body, {}, [&] { visit(body); });
    }

  private:
    struct scope {
        scope* outer;
        int n_branches = 0;  // how many `if` of this scope stand around
        std::unordered_map<int32_t, bool> is_hidden = {};
        std::vector<template_node*> inner = {};  // statements with scopes: visited when all names here are known
    };

    void mention(int32_t name, bool is_assigned) {
        bool is_known = false;
        for (const scope* s = now_; s && !is_known; s = s->outer) is_known = s->is_hidden.count(name) > 0;
        if (is_assigned) now_->is_hidden.try_emplace(name, !is_known && now_->n_branches == 0);
        else if (!is_known) now_->is_hidden[name] = false;
    }

    void visit_target(const template_node* target, bool is_argument) {
        if (target->kind == node_kind::tuple)
            for (const template_node* kid : target->kids) visit_target(kid, is_argument);
        else if (is_argument) now_->is_hidden[target->name] = false;
        else mention(target->name, target->kind == node_kind::name);
    }

    void visit_inner(template_node* n) {
        switch (n->kind) {
        case node_kind::for_loop:
            visit_scope(n->kids[3], {kNameLoop}, [&] {
                visit_target(n->kids[0], true);
                visit(n->kids[3]);
            });
            return n->kids[4] ? visit_body(n->kids[4]) : void();
        case node_kind::macro:
            return visit_scope(n->kids[0], n->names, [&] {
                for (size_t i = 1; i < n->kids.size(); i++) visit(n->kids[i]);
                visit(n->kids[0]);
            });
        case node_kind::with:
            return visit_scope(n->kids.back(), {}, [&] {
                for (size_t i = 0; i + 1 < n->kids.size(); i += 2) visit_target(n->kids[i], true);
                visit(n->kids.back());
            });
        default: visit_body(n->kids.back());
        }
    }

    void visit(template_node* n) {
        if (!n) return;
        switch (n->kind) {
        case node_kind::name: return mention(n->name, false);
        case node_kind::assign: visit(n->kids[1]); return visit_target(n->kids[0], false);
        case node_kind::if_chain:
            visit(n->kids[0]);
            now_->n_branches++;
            for (size_t i = 1; i < n->kids.size(); i++) visit(n->kids[i]);
            now_->n_branches--;
            return;
        case node_kind::capture:
            if (n->kids[0]) visit_target(n->kids[0], false);
            else visit(n->kids[1]);
            break;
        case node_kind::for_loop: visit(n->kids[1]); break;
        case node_kind::with:
            for (size_t i = 1; i + 1 < n->kids.size(); i += 2) visit(n->kids[i]);
            break;
        case node_kind::macro: mention(n->name, true); break;
        case node_kind::call_block: visit(n->kids[0]); return now_->inner.push_back(n->kids[1]);
        case node_kind::autoescape: visit(n->kids[0]); break;
        default:
            for (template_node* kid : n->kids) visit(kid);
            visit(n->star);
            return visit(n->star_star);
        }
        now_->inner.push_back(n);
    }

    scope* now_ = nullptr;
};

}  // namespace

void find_hidden_names(template_tree* tree) { scope_analysis().visit_body(tree->root); }

}  // namespace duet
