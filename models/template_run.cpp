// models/template_run.cpp: statements: what is written, scopes of variables, loops; compiling and rendering as a whole.
// Main path: models/template -> [models/template_run] -> models/template_eval
#include "template_run.h"

#include <algorithm>

namespace duet {

// ---- errors and limits ----

value template_run::fail(const std::string& what, duet_status code) {
    if (!failed()) {
        status = code;
        err.text = "template line " + std::to_string(line) + ": " + what;
    }
    return undefined("");
}

value template_run::refuse(const value& v, const char* what) {
    return fail(v.is(value_kind::undefined) ? std::string(v.as_string()) : what);
}

bool template_run::charge(uint64_t n) {
    if (failed()) return false;
    if (n > n_steps) fail("want at most " + std::to_string(limits.max_steps) + " steps", DUET_ERR_FULL);
    n_steps -= std::min(n, n_steps);
    return !failed();
}

bool template_run::has_room(size_t bytes) {
    const bool is_good = meter.used_bytes < meter.max_bytes && bytes <= meter.max_bytes - meter.used_bytes;
    if (!is_good) fail("want at most " + std::to_string(meter.max_bytes) + " bytes of values", DUET_ERR_FULL);
    return !failed();
}

value template_run::make(traced_text t) {
    return !has_room(t.size()) || !charge(t.size() / 64) ? undefined("") : value::of_text(std::move(t), &meter);
}

value template_run::make_sequence(std::vector<value> all, value_kind kind) {
    if (!has_room(all.size() * sizeof(value)) || !charge(all.size() / 8)) return undefined("");
    return value::of_list(std::move(all), &meter, kind);
}

value template_run::make_map(std::vector<value_member> members) {
    if (!has_room(members.size() * 2 * sizeof(value_member)) || !charge(members.size())) return undefined("");
    for (const value_member& m : members)
        if (!is_hashable(m.key)) return fail("unhashable type: this cannot be a key");
    return value::of_map(std::move(members), &meter);
}

value template_run::make_object(object_type type, std::vector<value> slots, template_object** out) {
    auto* object = new template_object(type, [](object_payload* p) { delete (template_object*)p; });
    object->slots = std::move(slots);
    if (out) *out = object;
    has_room(0);
    return value::of_object(object, &meter);
}

// ---- variables ----

value template_run::lookup(int32_t name) {
    const value* scope = &scope_;
    while (!scope->is_null()) {
        const template_object* s = object_of(*scope);
        for (size_t i = s->ids.size(); i-- > 0;)
            if (s->ids[i] == name) return s->slots[i + 1];
        scope = &s->slots[0];
    }
    return root_[(size_t)name];
}

// A scope inside of parent for the statements of body, which hides names of variables outside.
void template_run::enter_scope(const value& parent, const template_node* body) {
    scope_ = make_object(kScopeObject, {parent});
    if (!body) return;
    for (int32_t name : body->names) set(name, undefined("'" + tree.names[(size_t)name] + "' is undefined"));
}

void template_run::set(int32_t name, value v) {
    if (scope_.is_null()) {
        root_[(size_t)name] = std::move(v);
        return;
    }
    template_object* s = object_of(scope_);
    const auto at = std::find(s->ids.begin(), s->ids.end(), name);
    if (at != s->ids.end()) {
        s->slots[(size_t)(at - s->ids.begin()) + 1] = std::move(v);
        return;
    }
    s->ids.push_back(name);
    s->slots.push_back(std::move(v));
}

void template_run::assign(const template_node* target, value v) {
    if (target->kind == node_kind::name) return set(target->name, std::move(v));
    if (target->kind == node_kind::member) {
        const value object = lookup(target->name);
        template_object* ns = object_of(object, kNamespaceObject);
        if (!ns) return (void)fail("cannot assign attribute on non-namespace object");
        if (target->text()[0] == '_')
            fail("a name on a namespace may not begin with '_': " + std::string(target->text()));
        const size_t at = (size_t)(std::find(ns->names.begin(), ns->names.end(), target->text()) - ns->names.begin());
        if (at == ns->names.size()) {
            ns->names.emplace_back(target->text());
            ns->slots.emplace_back();
        }
        ns->slots[at] = std::move(v);
        return;
    }
    std::vector<value> items;
    collect(v, &items);
    if (items.size() != target->kids.size())
        return (void)fail("want " + std::to_string(target->kids.size()) + " values to unpack, got " +
                          std::to_string(items.size()));
    for (size_t i = 0; i < items.size(); i++) assign(target->kids[i], items[i]);
}

// ---- output ----

void template_run::emit(const traced_text& t) {
    if (out_->size() + t.size() > limits.max_output_bytes)
        return (void)fail("want at most " + std::to_string(limits.max_output_bytes) + " output bytes", DUET_ERR_FULL);
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
template <class Run> value template_run::capture(Run run) {
    traced_text buffer;
    traced_text* const outer = std::exchange(out_, &buffer);
    run();
    out_ = outer;
    meter.used_bytes -= buffer.size();
    buffer.is_markup = is_autoescape;
    return make(std::move(buffer));
}

// ---- loops ----

bool template_run::fetch(template_object* loop, value* out) {
    while (charge(1) && next_item(loop->slots[kLoopSource], &loop->at, out)) {
        if (!loop->has_condition) return true;
        const value inner = scope_;
        enter_scope(loop->slots[kLoopOuterScope], nullptr);
        assign(loop->node->kids[0], *out);
        const bool is_wanted = is_true(eval(loop->node->kids[2]));
        scope_ = inner;
        if (is_wanted && !failed()) return true;
    }
    return false;
}

bool template_run::advance(template_object* loop) {
    value item;
    if (loop->has_after) item = std::move(loop->slots[kLoopAfter]);
    else if (!fetch(loop, &item)) return false;
    loop->has_after = false;
    loop->has_before = ++loop->index0 > 0;
    loop->slots[kLoopBefore] = std::move(loop->slots[kLoopNow]);
    loop->slots[kLoopNow] = std::move(item);
    return true;
}

// Called when an iteration over item has ended, which began at this offset of the output.
void template_run::note_message(const value& item, size_t begin, bool has_written) {
    const void* id = item.identity();
    auto m = std::lower_bound(messages_.begin(), messages_.end(), std::make_pair(id, 0u));
    for (; m != messages_.end() && m->first == id; ++m) {
        if (has_written_[m->second]) continue;
        has_written_[m->second] = has_written;
        message_starts_[m->second] = (int64_t)begin;
    }
}

template_run::flow template_run::run_loop(const template_node* n, const value& iterable, int64_t depth0) {
    nesting level(this);
    if (!is_iterable(iterable)) return fail("a value to loop over is not iterable"), flow::on;
    const value outer = scope_;
    template_object* loop;
    const value self = make_object(kLoopObject, std::vector<value>(kLoopSlots), &loop);
    loop->slots[kLoopSource] = iterable;
    loop->slots[kLoopOuterScope] = outer;
    loop->node = n;
    loop->has_condition = n->kids[2] != nullptr;
    loop->depth0 = depth0;
    while (!failed() && advance(loop)) {
        enter_scope(outer, n->kids[3]);
        set(kNameLoop, self);
        const value item = loop->slots[kLoopNow];
        assign(n->kids[0], item);
        const size_t begin = main_out_.size(), n_captured = out_->size();
        const flow f = failed() ? flow::break_loop : exec(n->kids[3]);
        if (item.is_map()) note_message(item, begin, main_out_.size() > begin || out_->size() > n_captured);
        if (f == flow::break_loop) break;
    }
    scope_ = outer;
    loop->has_before = loop->has_after = loop->has_changed = false;
    for (loop_slot slot : {kLoopBefore, kLoopNow, kLoopAfter, kLoopChanged})
        loop->slots[slot] = value();  // one of them may refer to the loop
    return loop->index0 < 0 && n->kids[4] && !failed() ? exec_scope(n->kids[4]) : flow::on;
}

value template_run::call_loop(const value& self, call_arguments& arguments) {
    const template_object* loop = object_of(self);
    if (loop->node->op != 'r') return fail("want a loop marked 'recursive' to call it");
    if (arguments.values.size() != 1 || !arguments.named.empty()) return fail("want one argument for the loop");
    const value inner = std::exchange(scope_, loop->slots[kLoopOuterScope]);
    value text = capture([&] { run_loop(loop->node, arguments.values[0], loop->depth0 + 1); });
    scope_ = inner;
    return text;
}

// ---- macros ----

value template_run::define_macro(const template_node* n) {
    template_object* macro;
    value out = make_object(kMacroObject, {scope_}, &macro);
    macro->node = n;
    if (!scope_.is_null()) kept_.push_back(scope_);  // the scope will refer to the macro
    return out;
}

value template_run::call_macro(const value& self, call_arguments& arguments) {
    nesting level(this);
    if (!charge(1) || !level.is_good) return undefined("");
    const template_node* n = object_of(self)->node;
    const std::string name = "macro '" + tree.names[(size_t)n->name] + "' takes ";
    const value caller_scope = scope_;
    enter_scope(object_of(self)->slots[0], n->kids[0]);
    auto take_named = [&](int32_t id, const char* problem) {
        value v = undefined(problem);
        auto at = std::find_if(arguments.named.begin(), arguments.named.end(),
                               [&](const auto& a) { return a.first == tree.names[(size_t)id]; });
        if (at == arguments.named.end()) return std::make_pair(v, false);
        v = std::move(at->second);
        arguments.named.erase(at);
        return std::make_pair(v, true);
    };
    const size_t n_own = std::min(n->names.size(), arguments.values.size());
    bool has_caller = false;  // among the macro's own arguments
    std::vector<size_t> missing;
    for (size_t i = 0; i < n->names.size(); i++) {
        has_caller |= n->names[i] == kNameCaller;
        if (i < n_own) {
            set(n->names[i], arguments.values[i]);
            continue;
        }
        const auto [v, is_given] = take_named(n->names[i], "a parameter was not provided");
        if (!is_given) missing.push_back(i);
        set(n->names[i], v);
    }
    for (size_t i : missing)  // a default may use the arguments, but not the one it is for
        if (n->kids[i + 1] && !failed()) set(n->names[i], eval(n->kids[i + 1]));
    if ((n->op & kMacroCaller) && !has_caller) set(kNameCaller, take_named(kNameCaller, "No caller defined").first);
    if (n->op & kMacroKwargs) {
        std::vector<value_member> members;
        for (auto& [key, v] : arguments.named) members.push_back({value::of_string(key), std::move(v)});
        set(kNameKwargs, make_map(std::move(members)));
    } else if (!arguments.named.empty()) {
        fail(name + "no keyword argument '" + arguments.named[0].first + "'");
    }
    if (n->op & kMacroVarargs)
        set(kNameVarargs, make_tuple({arguments.values.begin() + (long)n_own, arguments.values.end()}));
    else if (arguments.values.size() > n_own) fail(name + "not more than " + std::to_string(n_own) + " argument(s)");
    value text = capture([&] {
        if (!failed()) exec(n->kids[0]);
    });
    scope_ = caller_scope;
    return text;
}

// ---- statements ----

// The statements of body in a scope of its own, in which the targets of a `with` are assigned first.
template_run::flow template_run::exec_scope(const template_node* body, const template_node* with) {
    std::vector<value> values;
    for (size_t i = 1; with && i + 1 < with->kids.size(); i += 2) values.push_back(eval(with->kids[i]));
    const value outer = scope_;
    enter_scope(outer, body);
    for (size_t i = 0; i < values.size(); i++) assign(with->kids[2 * i], values[i]);
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

// A block whose text goes through filters and then to a variable, or to the output where it has no target.
template_run::flow template_run::exec_captured(const template_node* n) {
    flow f = flow::on;
    value text = capture([&] { f = exec_scope(n->kids[2]); });
    if (f != flow::on || failed()) return f;
    if (n->kids[1]) {
        const value outer = std::exchange(captured_, text);
        text = eval(n->kids[1]);
        captured_ = outer;
    }
    if (n->kids[0]) assign(n->kids[0], text);
    else emit(text);
    return flow::on;
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
    case node_kind::capture: return exec_captured(n);
    case node_kind::macro: set(n->name, define_macro(n)); break;
    case node_kind::call_block: {
        const value caller = define_macro(n->kids[1]);
        emit(eval_call(n->kids[0], &caller));
        break;
    }
    case node_kind::with: return exec_scope(n->kids.back(), n);
    case node_kind::autoescape: {
        const bool was_autoescape = std::exchange(is_autoescape, is_true(eval(n->kids[0])));
        const flow f = exec_scope(n->kids[1]);
        is_autoescape = was_autoescape;
        return f;
    }
    case node_kind::break_loop: return flow::break_loop;
    case node_kind::continue_loop: return flow::continue_loop;
    default: fail("'" + std::string(n->text()) + "' is not supported", DUET_ERR_UNSUPPORTED);
    }
    return flow::on;
}

// ---- the whole ----

void template_run::prepare_variables(const value& variables) {
    root_.resize(tree.names.size());
    for (size_t i = 0; i < tree.names.size(); i++) {
        template_object* object;
        if (const value* v = variables.find(tree.names[i])) {
            root_[i] = *v;
        } else if (const native_function* function = find_global(tree.names[i])) {
            root_[i] = make_object(kFunctionObject, {}, &object);
            object->function = function;
        } else if (tree.names[i] == "self") {
            root_[i] = value::of_trusted("<TemplateReference None>");
        } else {
            root_[i] = undefined("'" + tree.names[i] + "' is undefined");
        }
    }
    for (int32_t i : tree.root->names) root_[(size_t)i] = undefined("'" + tree.names[(size_t)i] + "' is undefined");
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
