// models/template_run.cpp: statements: what is written, scopes of variables, loops; compiling and rendering as a whole.
// Main path: models/template -> [models/template_run] -> models/template_eval
#include "template_run.h"

#include <algorithm>

namespace duet {

// ---- errors and limits
// -----------------------------------------------------------------------------------------------

value template_run::fail(const std::string& what, duet_status code) {
    if (!failed()) {
        status = code;
        err.text = "template line " + std::to_string(line) + ": " + what;
    }
    return undefined("");
}

bool template_run::charge(uint64_t n) {
    if (failed()) return false;
    if (n > n_steps) {
        n_steps = 0;
        fail("want at most " + std::to_string(limits.max_steps) + " steps", DUET_ERR_FULL);
        return false;
    }
    n_steps -= n;
    return true;
}

bool template_run::has_room(size_t bytes) {
    if (failed()) return false;
    if (meter.used_bytes < meter.max_bytes && bytes <= meter.max_bytes - meter.used_bytes) return true;
    fail("want at most " + std::to_string(meter.max_bytes) + " bytes of values", DUET_ERR_FULL);
    return false;
}

value template_run::make(traced_text t) {
    if (!has_room(t.size()) || !charge(t.size() / 64)) return undefined("");
    return value::of_text(std::move(t), &meter);
}

value template_run::make_list(std::vector<value> items) {
    if (!has_room(items.size() * sizeof(value)) || !charge(items.size() / 8)) return undefined("");
    return value::of_list(std::move(items), &meter);
}

value template_run::make_tuple(std::vector<value> items) {
    if (!has_room(items.size() * sizeof(value)) || !charge(items.size() / 8)) return undefined("");
    return value::of_tuple(std::move(items), &meter);
}

value template_run::make_map(std::vector<value_member> members) {
    if (!has_room(members.size() * 2 * sizeof(value_member)) || !charge(members.size())) return undefined("");
    for (const value_member& m : members)
        if (!is_hashable(m.key)) return fail("unhashable type: this cannot be a key");
    return value::of_map(std::move(members), &meter);
}

value template_run::make_object(object_payload* object) {
    value out = value::of_object(object, &meter);
    has_room(0);
    return out;
}

value template_run::make_generator(value list) {
    auto* g = new_object<generator_object>(kGeneratorObject);
    g->slots.push_back(std::move(list));
    return make_object(g);
}

// ---- variables
// -------------------------------------------------------------------------------------------------------

const value* template_run::find_variable(int32_t name) {
    const value* scope = &scope_;
    while (!scope->is_null()) {
        const auto* s = (const scope_object*)scope->as_object();
        for (size_t i = s->names.size(); i-- > 0;)
            if (s->names[i] == name) return &s->slots[i + 1];
        scope = &s->slots[0];
    }
    return has_root_[(size_t)name] ? &root_[(size_t)name] : nullptr;
}

value template_run::lookup(int32_t name) {
    const value* v = find_variable(name);
    return v ? *v : undefined("'" + tree.names[(size_t)name] + "' is undefined");
}

void template_run::enter_scope(const value& parent) {
    auto* s = new_object<scope_object>(kScopeObject);
    s->slots.push_back(parent);
    scope_ = make_object(s);
}

// Variables of the caller that the scope of body has by the same name.
void template_run::hide_names(const template_node* body) {
    for (int32_t name : body->names)
        if (has_root_[(size_t)name]) set(name, undefined("'" + tree.names[(size_t)name] + "' is undefined"));
}

void template_run::set(int32_t name, value v) {
    if (scope_.is_null()) {
        root_[(size_t)name] = std::move(v);
        has_root_[(size_t)name] = true;
        return;
    }
    auto* s = (scope_object*)scope_.as_object();
    const auto at = std::find(s->names.begin(), s->names.end(), name);
    if (at != s->names.end()) {
        s->slots[(size_t)(at - s->names.begin()) + 1] = std::move(v);
        return;
    }
    s->names.push_back(name);
    s->slots.push_back(std::move(v));
}

void template_run::assign(const template_node* target, value v) {
    if (target->kind == node_kind::name) return set(target->name, std::move(v));
    if (target->kind == node_kind::member) {
        const value object = lookup(target->name);
        if (!object.is(value_kind::object) || object.as_object()->type != kNamespaceObject) {
            fail("cannot assign attribute on non-namespace object");
            return;
        }
        auto* ns = (namespace_object*)object.as_object();
        if (target->text()[0] == '_')
            fail("a name on a namespace may not begin with '_': " + std::string(target->text()));
        const auto at = std::find(ns->names.begin(), ns->names.end(), target->text());
        if (at != ns->names.end()) {
            ns->slots[(size_t)(at - ns->names.begin())] = std::move(v);
            return;
        }
        ns->names.emplace_back(target->text());
        ns->slots.push_back(std::move(v));
        return;
    }
    std::vector<value> items;
    if (!collect(v, &items)) return;
    if (items.size() != target->kids.size()) {
        fail("want " + std::to_string(target->kids.size()) + " values to unpack, got " + std::to_string(items.size()));
        return;
    }
    for (size_t i = 0; i < items.size(); i++) assign(target->kids[i], items[i]);
}

// ---- output
// ----------------------------------------------------------------------------------------------------------

void template_run::emit(const traced_text& t) {
    if (out_->size() + t.size() > limits.max_output_bytes) {
        fail("want at most " + std::to_string(limits.max_output_bytes) + " bytes of output", DUET_ERR_FULL);
        return;
    }
    if (!has_room(t.size()) || !charge(t.size() / 64)) return;
    meter.used_bytes += t.size();
    out_->append(t);
}

void template_run::emit(const value& v) {
    if (v.is_string() && (!is_autoescape || v.as_text().is_markup)) return emit(v.as_text());
    const traced_text t = to_text(v);
    emit(is_autoescape && !t.is_markup ? escape_html(t) : t);
}

// What run() writes, as a text instead of output.
template <class Run> traced_text template_run::capture(Run run) {
    traced_text buffer;
    traced_text* const outer = std::exchange(out_, &buffer);
    run();
    out_ = outer;
    meter.used_bytes -= buffer.size();
    buffer.is_markup = is_autoescape;
    return buffer;
}

value template_run::captured_filters(const template_node* filters, traced_text captured) {
    value text = make(std::move(captured));
    if (!filters) return text;
    const value outer = std::exchange(captured_, text);
    value out = eval(filters);
    captured_ = outer;
    return out;
}

// ---- loops
// -----------------------------------------------------------------------------------------------------------

bool template_run::fetch(loop_object* loop, value* out) {
    while (charge(1) && next_item(loop->slots[loop_object::kSource], &loop->at, out)) {
        if (!loop->has_condition) return true;
        const value inner = scope_;
        enter_scope(loop->slots[loop_object::kOuterScope]);
        assign(loop->node->kids[0], *out);
        const bool is_wanted = is_true(eval(loop->node->kids[2]));
        scope_ = inner;
        if (is_wanted && !failed()) return true;
    }
    return false;
}

bool template_run::advance(loop_object* loop) {
    value item;
    if (loop->has_after) item = std::move(loop->slots[loop_object::kAfter]);
    else if (!fetch(loop, &item)) return false;
    loop->has_after = false;
    loop->has_before = ++loop->index0 > 0;
    loop->slots[loop_object::kBefore] = std::move(loop->slots[loop_object::kNow]);
    loop->slots[loop_object::kNow] = std::move(item);
    return true;
}

// Called when an iteration over item has ended, which began at this offset of the output.
void template_run::note_message(const value& item, size_t begin, bool has_written) {
    const void* id = item.identity();
    const auto at = std::lower_bound(messages_.begin(), messages_.end(), std::make_pair(id, 0u));
    for (auto m = at; m != messages_.end() && m->first == id; ++m) {
        if (has_written_[m->second]) continue;
        has_written_[m->second] = has_written;
        message_starts_[m->second] = (int64_t)begin;
    }
}

template_run::flow template_run::run_loop(const template_node* n, const value& iterable, int64_t depth0) {
    nesting level(this);
    if (!is_iterable(iterable)) return fail("a value to loop over is not iterable"), flow::on;
    const value outer = scope_;
    auto* loop = new_object<loop_object>(kLoopObject);
    const value self = make_object(loop);
    loop->slots.resize(loop_object::kSlots);
    loop->slots[loop_object::kSource] = iterable;
    loop->slots[loop_object::kOuterScope] = outer;
    loop->node = n;
    loop->has_condition = n->kids[2] != nullptr;
    loop->depth0 = depth0;
    while (!failed() && advance(loop)) {
        enter_scope(outer);
        hide_names(n->kids[3]);
        set(kNameLoop, self);
        const value item = loop->slots[loop_object::kNow];
        assign(n->kids[0], item);
        const size_t begin = main_out_.size(), n_captured = out_->size();
        const flow f = failed() ? flow::break_loop : exec(n->kids[3]);
        if (item.is_map()) note_message(item, begin, main_out_.size() > begin || out_->size() > n_captured);
        if (f == flow::break_loop) break;
    }
    scope_ = outer;
    loop->has_before = loop->has_after = loop->has_changed = false;
    for (int slot : {loop_object::kBefore, loop_object::kNow, loop_object::kAfter, loop_object::kChanged})
        loop->slots[(size_t)slot] = value();  // one of them may refer to the loop
    if (loop->index0 < 0 && n->kids[4] && !failed()) return exec_scope(n->kids[4]);
    return flow::on;
}

value template_run::call_loop(const value& self, call_arguments& arguments) {
    const auto* loop = (const loop_object*)self.as_object();
    if (loop->node->op != 'r') return fail("want a loop marked 'recursive' to call it");
    if (arguments.values.size() != 1 || !arguments.named.empty()) return fail("want one argument for the loop");
    const value inner = std::exchange(scope_, loop->slots[loop_object::kOuterScope]);
    const template_node* n = loop->node;
    traced_text text = capture([&] { run_loop(n, arguments.values[0], loop->depth0 + 1); });
    scope_ = inner;
    return make(std::move(text));
}

// ---- macros
// ----------------------------------------------------------------------------------------------------------

value template_run::define_macro(const template_node* n) {
    auto* macro = new_object<macro_object>(kMacroObject);
    macro->node = n;
    macro->slots.push_back(scope_);
    if (!scope_.is_null()) kept_.push_back(scope_);  // the scope will refer to the macro
    return make_object(macro);
}

value template_run::call_macro(const value& self, call_arguments& arguments) {
    nesting level(this);
    if (!charge(1) || !level.is_good) return undefined("");
    const template_node* n = ((const macro_object*)self.as_object())->node;
    const std::string name = n->name >= 0 ? tree.names[(size_t)n->name] : "caller";
    const value caller_scope = scope_;
    enter_scope(self.as_object()->slots[0]);
    auto take_named = [&](int32_t id, value* out) {
        auto at = std::find_if(arguments.named.begin(), arguments.named.end(),
                               [&](const auto& a) { return a.first == tree.names[(size_t)id]; });
        if (at == arguments.named.end()) return false;
        *out = std::move(at->second);
        arguments.named.erase(at);
        return true;
    };
    hide_names(n->kids[0]);
    bool has_caller = false;  // among the macro's own arguments
    std::vector<size_t> missing;
    for (size_t i = 0; i < n->names.size(); i++) {
        value v;
        has_caller |= n->names[i] == kNameCaller;
        if (i < arguments.values.size()) {
            v = arguments.values[i];
        } else if (!take_named(n->names[i], &v)) {
            v = undefined("parameter '" + tree.names[(size_t)n->names[i]] + "' was not provided");
            missing.push_back(i);
        }
        set(n->names[i], std::move(v));
    }
    for (size_t i : missing)  // a default may use the arguments, but not the one it is for
        if (n->kids[i + 1] && !failed()) set(n->names[i], eval(n->kids[i + 1]));
    if ((n->op & kMacroCaller) && !has_caller) {
        value caller;
        if (!take_named(kNameCaller, &caller)) caller = undefined("No caller defined");
        set(kNameCaller, std::move(caller));
    }
    if (n->op & kMacroKwargs) {
        std::vector<value_member> members;
        for (auto& [key, v] : arguments.named) members.push_back({make(key), std::move(v)});
        set(kNameKwargs, make_map(std::move(members)));
    } else if (!arguments.named.empty()) {
        fail("macro '" + name + "' takes no keyword argument '" + arguments.named[0].first + "'");
    }
    const size_t n_own = std::min(n->names.size(), arguments.values.size());
    if (n->op & kMacroVarargs)
        set(kNameVarargs, make_tuple({arguments.values.begin() + (long)n_own, arguments.values.end()}));
    else if (arguments.values.size() > n_own)
        fail("macro '" + name + "' takes not more than " + std::to_string(n_own) + " argument(s)");
    traced_text text = capture([&] {
        if (!failed()) exec(n->kids[0]);
    });
    scope_ = caller_scope;
    return make(std::move(text));
}

// ---- statements
// ------------------------------------------------------------------------------------------------------

template_run::flow template_run::exec_scope(const template_node* body) {
    const value outer = scope_;
    enter_scope(outer);
    hide_names(body);
    const flow f = exec(body);
    scope_ = outer;
    return f;
}

template_run::flow template_run::exec_if(const template_node* n) {
    size_t i = 0;
    for (; i + 1 < n->kids.size(); i += 2) {
        const bool is_met = is_true(eval(n->kids[i]));
        if (failed()) return flow::on;
        if (is_met) return exec(n->kids[i + 1]);
    }
    return i < n->kids.size() ? exec(n->kids[i]) : flow::on;
}

template_run::flow template_run::exec_with(const template_node* n) {
    std::vector<value> values;
    for (size_t i = 0; i + 1 < n->kids.size(); i += 2) values.push_back(eval(n->kids[i + 1]));
    const value outer = scope_;
    enter_scope(outer);
    hide_names(n->kids.back());
    for (size_t i = 0; i < values.size(); i++) assign(n->kids[2 * i], values[i]);
    const flow f = exec(n->kids.back());
    scope_ = outer;
    return f;
}

template_run::flow template_run::exec_set_block(const template_node* n) {
    flow f = flow::on;
    traced_text text = capture([&] { f = exec_scope(n->kids[2]); });
    if (f == flow::on && !failed()) assign(n->kids[0], captured_filters(n->kids[1], std::move(text)));
    return f;
}

template_run::flow template_run::exec_filter_block(const template_node* n) {
    flow f = flow::on;
    traced_text text = capture([&] { f = exec_scope(n->kids[1]); });
    if (f == flow::on && !failed()) emit(captured_filters(n->kids[0], std::move(text)));
    return f;
}

template_run::flow template_run::exec_autoescape(const template_node* n) {
    const bool was_autoescape = std::exchange(is_autoescape, is_true(eval(n->kids[0])));
    const flow f = exec_scope(n->kids[1]);
    is_autoescape = was_autoescape;
    return f;
}

template_run::flow template_run::exec(const template_node* n) {
    nesting level(this);
    line = n->line;
    if (!charge(1)) return flow::on;
    switch (n->kind) {
    case node_kind::body:
        for (const template_node* kid : n->kids) {
            const flow f = exec(kid);
            if (f != flow::on) return f;
            if (failed()) break;
        }
        break;
    case node_kind::data: emit(n->constant.as_text()); break;
    case node_kind::print: emit(eval(n->kids[0])); break;
    case node_kind::for_loop: return run_loop(n, eval(n->kids[1]), 0);
    case node_kind::if_chain: return exec_if(n);
    case node_kind::assign: assign(n->kids[0], eval(n->kids[1])); break;
    case node_kind::assign_block: return exec_set_block(n);
    case node_kind::macro: set(n->name, define_macro(n)); break;
    case node_kind::call_block: {
        const value caller = define_macro(n->kids[1]);
        emit(eval_call(n->kids[0], &caller));
        break;
    }
    case node_kind::filter_block: return exec_filter_block(n);
    case node_kind::with: return exec_with(n);
    case node_kind::scope: return exec_scope(n->kids[0]);
    case node_kind::autoescape: return exec_autoescape(n);
    case node_kind::break_loop: return flow::break_loop;
    case node_kind::continue_loop: return flow::continue_loop;
    default: fail("'" + std::string(n->text()) + "' is not supported", DUET_ERR_UNSUPPORTED);
    }
    return flow::on;
}

// ---- the whole
// -------------------------------------------------------------------------------------------------------

void template_run::prepare_variables(const value& variables) {
    root_.resize(tree.names.size());
    has_root_.resize(tree.names.size());
    for (size_t i = 0; i < tree.names.size(); i++) {
        has_root_[i] = true;
        if (const value* v = variables.find(tree.names[i])) {
            root_[i] = *v;
        } else if (const native_function* function = find_global(tree.names[i])) {
            auto* object = new_object<function_object>(kFunctionObject);
            object->function = function;
            root_[i] = make_object(object);
        } else if (tree.names[i] == "self") {
            root_[i] = value::of_trusted("<TemplateReference None>");
        } else {
            has_root_[i] = false;
        }
    }
    const value* messages = variables.find("messages");
    if (!messages || !messages->is_list()) return;
    message_starts_.assign(messages->items().size(), -1);
    has_written_.assign(messages->items().size(), false);
    for (uint32_t i = 0; i < messages->items().size(); i++)
        if (messages->items()[i].is_map()) messages_.emplace_back(messages->items()[i].identity(), i);
    std::sort(messages_.begin(), messages_.end());
}

duet_status template_run::render(const value& variables, rendered_template* out) {
    prepare_variables(variables);
    out_ = &main_out_;
    for (int32_t name : tree.root->names) has_root_[(size_t)name] = false;
    exec(tree.root);
    if (failed()) return status;
    out->text = std::move(main_out_);
    out->text.is_markup = false;
    out->message_starts = std::move(message_starts_);
    return DUET_OK;
}

// Scopes with macros and namespaces may refer to themselves, so that counting references alone would never free them.
template_run::~template_run() {
    for (value& v : kept_) {
        std::vector<value> slots = std::move(v.as_object()->slots);
        v.as_object()->slots.clear();
    }
}

duet_status chat_template::compile(std::string_view source, chat_template* out, error_text& err,
                                   const template_limits& limits) {
    if (source.size() > limits.max_source_bytes)
        return fail(err, DUET_ERR_FORMAT, "template line 1: want at most %zu bytes, got %zu", limits.max_source_bytes,
                    source.size());
    if (!utf8_valid(source)) return fail(err, DUET_ERR_FORMAT, "template line 1: want valid UTF-8");
    auto tree = std::make_shared<template_tree>();
    DUET_TRY(parse_template(source, limits, tree.get(), err));
    out->tree_ = std::move(tree);
    out->limits_ = limits;
    return DUET_OK;
}

duet_status chat_template::render(const value& variables, const template_time& now, rendered_template* out,
                                  error_text& err) const {
    if (!tree_) return fail(err, DUET_ERR_STATE, "template: want a compiled one");
    return template_run(*tree_, limits_, now, err).render(variables, out);
}

}  // namespace duet
