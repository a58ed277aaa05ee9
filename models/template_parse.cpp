// models/template_parse.cpp: the tokens of a template as a tree. Recursive descent over the grammar of Jinja 3.1.
// After an error every token reads as the end, so that all loops finish; the first error is kept.
// Source: the documentation of Jinja 3.1, "Template Designer Documentation"; details asked of the reference.
// Main path: models/template_lex -> [models/template_parse] -> models/template_run
#include "template_text.h"
#include "template_tree.h"

#include <algorithm>
#include <unordered_set>

namespace duet {

namespace {

using node = template_node;
using words = std::initializer_list<std::string_view>;

class template_parser {
  public:
    template_parser(const template_limits& limits, template_tree* tree, error_text& err)
        : limits_(limits), tree_(*tree), err_(err) {}

    duet_status parse() {
        for (const char* name : {"loop", "caller", "kwargs", "varargs", "messages"}) tree_.name_id(name);
        DUET_TRY(lex_template(tree_.source, limits_, &tokens_, err_));
        tree_.root = parse_body({});
        if (status_ == DUET_OK && !missing_.empty()) return fail(err_, DUET_ERR_UNSUPPORTED, "%s", missing_[0].c_str());
        if (status_ == DUET_OK) find_hidden_names(&tree_);
        return status_;
    }

  private:
    // ---- tokens and errors ----

    const template_token& now() const { return tokens_[at_]; }
    const template_token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
    void step() { at_ = std::min(at_ + 1, tokens_.size() - 1); }

    std::string in_line(const std::string& what) const {
        return "template line " + std::to_string(now().line) + ": " + what;
    }

    void wrong(const std::string& what) {
        if (status_ == DUET_OK) err_.text = in_line(what);
        status_ = DUET_ERR_FORMAT;
        at_ = tokens_.size() - 1;
    }

    void wrong_depth(int most) { wrong("nested too deeply: want at most " + std::to_string(most) + " levels"); }
    void missed(const std::string& what) { wrong("want " + what + ", got " + describe(now())); }

    static bool is_text(const template_token& t, std::string_view text) {
        return (t.kind == token_kind::name || t.kind == token_kind::op) && t.text == text;
    }
    bool is(std::string_view text) const { return is_text(now(), text); }
    bool is_any(words list) const {
        return std::ranges::any_of(list, [&](std::string_view word) { return is(word); });
    }
    bool take(std::string_view text) { return is(text) && (step(), true); }
    void want(std::string_view text) {
        if (!take(text)) missed("'" + std::string(text) + "'");
    }
    void want_kind(token_kind kind, const char* what) {
        if (now().kind == kind) step();
        else missed(what);
    }
    std::string_view want_name() {
        const std::string_view name = now().text;
        want_kind(token_kind::name, "a name");
        return name;
    }

    // Counts how deep the source is nested, for as long as it lives.
    struct nesting {
        template_parser& p;
        explicit nesting(template_parser* parser) : p(*parser) {
            if (++p.depth_ > p.limits_.max_nesting) p.wrong_depth(p.limits_.max_nesting);
        }
        ~nesting() { p.depth_--; }
    };

    // What holds inside of a statement, and ends with it.
    struct context {
        bool is_in_loop = false;
        bool is_soft = false;  // inside of a condition, where a missing filter is an error only when it is run
    };
    struct inner_context {
        template_parser& p;
        context outer;
        inner_context(template_parser* parser, context inner) : p(*parser), outer(std::exchange(p.context_, inner)) {}
        ~inner_context() { p.context_ = outer; }
    };

    // ---- nodes ----

    node* make(node_kind kind, std::initializer_list<node*> kids = {}, char op = 0) {
        node& n = tree_.nodes.emplace_back();
        n.kind = kind;
        n.line = now().line;
        n.op = (uint8_t)op;
        for (node* kid : kids) add(&n, kid);
        return &n;
    }

    node* constant(value v, node_kind kind = node_kind::constant, std::initializer_list<node*> kids = {}) {
        node* n = make(kind, kids);
        n->constant = std::move(v);
        return n;
    }

    node* with_text(node_kind kind, std::string_view text, std::initializer_list<node*> kids = {}) {
        return constant(value::of_trusted(std::string(text)), kind, kids);
    }

    node* with_name(node_kind kind, std::string_view name, std::initializer_list<node*> kids = {}) {
        node* n = make(kind, kids);
        n->name = tree_.name_id(name);
        return n;
    }

    void grow(node* n, const node* kid) {
        if (!kid) return;
        if (kid->height >= limits_.max_height) wrong_depth(limits_.max_height);
        n->height = std::max<uint16_t>(n->height, (uint16_t)(kid->height + 1));
    }

    void add(node* n, node* kid) {
        grow(n, kid);
        n->kids.push_back(kid);
    }

    // ---- expressions, from the loosest operator to the tightest ----

    node* parse_expression(bool with_choice = true) {
        nesting level(this);
        const size_t n_missing = missing_.size();
        node* left = parse_binary(0);
        while (with_choice && is("if")) {
            missing_.resize(n_missing);  // what stands before the condition is only run when it is true
            inner_context soft(this, {context_.is_in_loop, true});
            step();
            node* n = make(node_kind::choice, {parse_binary(0), left});
            add(n, take("else") ? parse_expression() : nullptr);
            left = n;
        }
        return left;
    }

    struct binary_op {
        int level;
        std::string_view text;
        node_kind kind;
        char op;
    };
    enum { kCompareLevel = 2, kUnaryLevel = 7 };

    const binary_op* take_binary_op(int level) {
        // clang-format off
        static constexpr binary_op kOps[] = {
            {0, "or", node_kind::either, 0},
            {1, "and", node_kind::both, 0},
            {3, "+", node_kind::binary, '+'}, {3, "-", node_kind::binary, '-'},
            {4, "~", node_kind::concat, 0},
            {5, "*", node_kind::binary, '*'}, {5, "/", node_kind::binary, '/'},
            {5, "//", node_kind::binary, 'D'}, {5, "%", node_kind::binary, '%'},
            {6, "**", node_kind::binary, 'P'},
        };
        // clang-format on
        for (const binary_op& op : kOps)
            if (op.level == level && take(op.text)) return &op;
        return nullptr;
    }

    node* parse_binary(int level) {
        if (level == kCompareLevel) return parse_compare();
        if (level == kUnaryLevel) return parse_unary(true);
        node *left = parse_binary(level + 1), *chain = nullptr;  // a ~ b ~ c is one node
        while (const binary_op* op = take_binary_op(level)) {
            node* right = parse_binary(level + 1);
            if (chain) add(chain, right);
            else left = make(op->kind, {left, right}, op->op);
            if (op->kind == node_kind::concat) chain = left;
        }
        return left;
    }

    char take_compare_op() {
        static constexpr std::pair<std::string_view, char> kOps[] = {
            {"==", kEqual},  {"!=", kUnequal},      {"<", kLess}, {"<=", kLessEqual},
            {">", kGreater}, {">=", kGreaterEqual}, {"in", kIn}};
        for (const auto& [text, op] : kOps)
            if (take(text)) return op;
        if (!is("not") || !is_text(next(), "in")) return 0;
        step();
        step();
        return kNotIn;
    }

    node* parse_compare() {
        if (is("not")) {
            nesting level(this);
            step();
            return make(node_kind::unary, {parse_compare()}, '!');
        }
        node *first = parse_binary(kCompareLevel + 1), *n = nullptr;
        std::string ops;
        while (const char op = take_compare_op()) {
            if (!n) n = make(node_kind::compare, {first});
            add(n, parse_binary(kCompareLevel + 1));
            ops += op;
        }
        if (!n) return first;
        n->constant = value::of_trusted(ops);
        return n;
    }

    node* parse_unary(bool with_filters) {
        nesting level(this);
        const char sign = is("-") || is("+") ? now().text[0] : 0;
        if (sign) step();
        node* n = parse_postfix(sign ? make(node_kind::unary, {parse_unary(false)}, sign) : parse_primary());
        while (with_filters) {
            if (is("|")) n = parse_filters(n, false);
            else if (is("is")) n = parse_test(n);
            else if (is("(")) parse_arguments(n = make(node_kind::call, {n}));
            else break;
        }
        return n;
    }

    node* parse_primary() {
        const std::string_view text = now().text;
        switch (now().kind) {
        case token_kind::name: step(); return parse_word(text);
        case token_kind::string: {
            std::string s;
            for (; now().kind == token_kind::string; step())
                if (!unescape_string(now().text, &s)) wrong("a string with an invalid escape");
            return constant(value::of_trusted(std::move(s)));
        }
        case token_kind::integer:
        case token_kind::real: step(); return constant(number_of_literal(text));
        default: break;
        }
        node* n = make(node_kind::list);
        if (take("(")) {
            n = parse_tuple(false, true, {}, true);
            want(")");
        } else if (take("[")) {
            parse_items("]", [&] { add(n, parse_expression()); });
        } else if (take("{")) {
            n->kind = node_kind::map;
            parse_items("}", [&] {
                add(n, parse_expression());
                want(":");
                add(n, parse_expression());
            });
        } else missed("an expression");
        return n;
    }

    // Items with commas between them and, where it may, behind the last one.
    template <class Parse> void parse_items(std::string_view close, Parse parse, bool may_end_with_comma = true) {
        for (bool is_first = true; !is(close) && status_ == DUET_OK; is_first = false) {
            if (!is_first) want(",");
            if (is(close) && may_end_with_comma) break;
            parse();
        }
        want(close);
    }

    node* parse_word(std::string_view text) {
        if (text == "true" || text == "True") return constant(value::of_bool(true));
        if (text == "false" || text == "False") return constant(value::of_bool(false));
        if (text == "none" || text == "None") return constant({});
        if (text == "caller") macro_uses_ |= kMacroCaller;
        if (text == "kwargs") macro_uses_ |= kMacroKwargs;
        if (text == "varargs") macro_uses_ |= kMacroVarargs;
        return with_name(node_kind::name, text);
    }

    // One expression, or several with commas between them as a tuple. is_target: only names and literals.
    node* parse_tuple(bool is_target, bool with_choice, words ends, bool has_parentheses) {
        nesting level(this);
        node* n = make(node_kind::tuple);
        bool is_tuple = false;
        while (status_ == DUET_OK) {
            if (now().kind == token_kind::print_end || now().kind == token_kind::block_end || is(")") || is_any(ends))
                break;
            add(n, is_target ? parse_target_item() : parse_expression(with_choice));
            if (!take(",")) break;
            is_tuple = true;
        }
        if (!is_tuple && n->kids.size() == 1) return n->kids[0];
        if (!is_tuple && !has_parentheses) missed("an expression");
        return n;
    }

    node* parse_target_item() {
        if (now().kind != token_kind::name || !is_text(next(), ".")) return parse_primary();
        node* n = with_name(node_kind::member, now().text);
        step();
        step();
        n->constant = value::of_trusted(std::string(want_name()));
        return n;
    }

    // What may be assigned to: a name, ns.attr (where has_members), or a tuple of these.
    node* parse_target(words ends, bool has_members) {
        node* n = parse_tuple(true, true, ends, false);
        check_target(n, has_members);
        return n;
    }

    void check_target(const node* n, bool has_members) {
        if (n->kind == node_kind::tuple)
            for (const node* kid : n->kids) check_target(kid, has_members);
        else if (n->kind != node_kind::name && !(has_members && n->kind == node_kind::member))
            wrong("cannot assign to this");
    }

    node* parse_postfix(node* n) {
        while (true) {
            if (take(".")) n = parse_attribute(n);
            else if (take("[")) n = parse_subscript(n);
            else if (is("(")) parse_arguments(n = make(node_kind::call, {n}));
            else return n;
        }
    }

    node* parse_attribute(node* object) {
        const std::string_view text = now().text;
        if (now().kind == token_kind::integer) {
            step();
            return make(node_kind::item, {object, constant(number_of_literal(text))});
        }
        node* n = with_text(node_kind::attribute, text, {object});
        want_kind(token_kind::name, "a name or number");
        return n;
    }

    node* parse_subscript(node* object) {
        node* subscript = make(node_kind::tuple);
        parse_items("]", [&] { add(subscript, parse_slice()); });
        return make(node_kind::item, {object, subscript->kids.size() == 1 ? subscript->kids[0] : subscript});
    }

    node* parse_slice() {
        node* first = is(":") ? nullptr : parse_expression();
        if (!take(":")) return first;
        auto parse_part = [&] { return is_any({":", "]", ","}) ? nullptr : parse_expression(); };
        node* end = parse_part();
        node* step = take(":") ? parse_part() : nullptr;
        return make(node_kind::slice, {first, end, step});
    }

    void parse_arguments(node* n) {
        want("(");
        parse_items(")", [&] {
            node** star = is("**") ? &n->star_star : is("*") ? &n->star : nullptr;
            if (n->star_star || (star && *star)) wrong("want one '*' and behind it one '**'");
            if (star) {
                step();
                return grow(n, *star = parse_expression());
            }
            const bool is_named = now().kind == token_kind::name && is_text(next(), "=");
            if (is_named) {
                const int32_t name = tree_.name_id(now().text);
                if (std::ranges::find(n->names, name) != n->names.end()) wrong("an argument is named twice");
                step();
                step();
                n->names.push_back(name);
            } else if (!n->names.empty() || n->star) missed("a named argument");
            add(n, parse_expression());
        });
    }

    // A filter or test of an operand.
    node* parse_function(node_kind kind, node* operand) {
        std::string name(want_name());
        while (take(".")) name += "." + std::string(want_name());
        node* n = with_text(kind, name, {operand});
        n->function = kind == node_kind::filter ? find_filter(name) : find_test(name);
        if (!n->function && !context_.is_soft)
            missing_.push_back(
                in_line((kind == node_kind::filter ? "no filter named '" : "no test named '") + printable(name) + "'"));
        return n;
    }

    // is_inline: the first filter stands there without its bar.
    node* parse_filters(node* operand, bool is_inline) {
        while (std::exchange(is_inline, false) || take("|")) {
            operand = parse_function(node_kind::filter, operand);
            if (is("(")) parse_arguments(operand);
        }
        return operand;
    }

    node* parse_test(node* operand) {
        step();  // is
        const bool is_negated = take("not");
        node* n = parse_function(node_kind::test, operand);
        const token_kind kind = now().kind;
        if (is("(")) {
            parse_arguments(n);
        } else if ((kind == token_kind::name && !is_any({"else", "or", "and"})) || kind == token_kind::string ||
                   kind == token_kind::integer || kind == token_kind::real || is("[") || is("{")) {
            if (is("is")) wrong("tests cannot be chained with 'is'");
            add(n, parse_postfix(parse_primary()));
        }
        return is_negated ? make(node_kind::unary, {n}, '!') : n;
    }

    // ---- statements ----

    // Statements up to a tag whose name is in ends; that name is the current token then. No ends: up to the end.
    node* parse_body(words ends) {
        nesting level(this);
        node* body = make(node_kind::body);
        while (true) {
            const template_token& token = now();
            if (token.kind == token_kind::data) {
                add(body, with_text(node_kind::data, token.text));
                step();
            } else if (token.kind == token_kind::print_begin) {
                step();
                add(body, make(node_kind::print, {parse_tuple(false, true, {}, false)}));
                want_kind(token_kind::print_end, "'}}'");
            } else if (token.kind == token_kind::block_begin) {
                step();
                if (is_any(ends)) return body;
                add(body, parse_statement());
                want_kind(token_kind::block_end, "'%}'");
            } else {
                if (ends.size() > 0) missed("'" + std::string(*ends.begin()) + "'");
                return body;
            }
        }
    }

    // The rest of a tag, the statements it holds, and the name of the tag that ends them.
    node* parse_block(words ends) {
        take(":");
        want_kind(token_kind::block_end, "'%}'");
        return parse_body(ends);
    }

    // What stands in a scope of its own, where a filter has to exist even when it is never run.
    node* parse_hard_block_to(std::string_view end, bool may_be_in_loop = true) {
        inner_context hard(this, {may_be_in_loop && context_.is_in_loop, false});
        node* body = parse_block({end});
        step();
        return body;
    }

    node* parse_statement() {
        const std::string_view tag = now().text;
        if (take("for")) return parse_for();
        if (take("if")) return parse_if();
        if (take("set")) return parse_set();
        if (take("macro")) return parse_macro();
        if (take("call")) return parse_call_block();
        if (take("with")) return parse_with();
        if (take("block")) return parse_named_block();
        if (take("print")) return make(node_kind::print, {parse_tuple(false, true, {}, false)});
        if (take("generation")) return make(node_kind::with, {parse_hard_block_to("endgeneration", false)});
        if (take("filter")) {
            node* filters = parse_filters(make(node_kind::captured), true);
            return make(node_kind::capture, {nullptr, filters, parse_hard_block_to("endfilter")});
        }
        if (take("autoescape")) {
            node* condition = parse_expression();
            return make(node_kind::autoescape, {condition, parse_hard_block_to("endautoescape")});
        }
        if (take("break") || take("continue")) {
            if (!context_.is_in_loop) wrong("'break' or 'continue' outside of a loop");
            return make(tag == "break" ? node_kind::break_loop : node_kind::continue_loop);
        }
        if (is_any({"include", "import", "from", "extends"})) {
            node* n = with_text(node_kind::unsupported, tag);
            while (now().kind != token_kind::block_end && now().kind != token_kind::end) step();
            return n;
        }
        wrong("unknown tag " + describe(now()));
        return make(node_kind::body);
    }

    node* parse_for() {
        node* target = parse_target({"in"}, false);
        want("in");
        node* iterable = parse_tuple(false, false, {"recursive"}, false);
        node* condition = take("if") ? parse_expression() : nullptr;
        const char op = take("recursive") ? 'r' : 0;
        inner_context hard(this, {true, false});
        node* n = make(node_kind::for_loop, {target, iterable, condition, parse_block({"endfor", "else"})}, op);
        context_.is_in_loop = hard.outer.is_in_loop;
        add(n, take("else") ? parse_block({"endfor"}) : nullptr);
        step();
        return n;
    }

    node* parse_if() {
        node* n = make(node_kind::if_chain);
        inner_context soft(this, {context_.is_in_loop, true});
        do {
            add(n, parse_tuple(false, false, {}, false));
            add(n, parse_block({"elif", "else", "endif"}));
        } while (take("elif"));
        if (take("else")) add(n, parse_block({"endif"}));
        step();
        return n;
    }

    node* parse_set() {
        node* target = parse_target({}, true);
        if (take("=")) return make(node_kind::assign, {target, parse_tuple(false, true, {}, false)});
        node* filters = is("|") ? parse_filters(make(node_kind::captured), false) : nullptr;
        return make(node_kind::capture, {target, filters, parse_hard_block_to("endset")});
    }

    void parse_signature(node* n) {
        want("(");
        parse_items(
            ")",
            [&] {
                const bool had_default = n->kids.size() > 1 && n->kids.back();
                n->names.push_back(tree_.name_id(want_name()));
                add(n, take("=") ? parse_expression() : nullptr);
                if (had_default && !n->kids.back()) wrong("an argument without a default follows one with a default");
            },
            false);
    }

    void parse_macro_body(node* n, std::string_view end) {
        const int outer_uses = std::exchange(macro_uses_, 0);
        grow(n, n->kids[0] = parse_hard_block_to(end, false));
        n->op = (uint8_t)macro_uses_;
        macro_uses_ |= outer_uses;
    }

    node* parse_macro() {
        node* n = with_name(node_kind::macro, want_name(), {nullptr});
        parse_signature(n);
        parse_macro_body(n, "endmacro");
        return n;
    }

    node* parse_call_block() {
        node* macro = with_name(node_kind::macro, "caller", {nullptr});
        if (is("(")) parse_signature(macro);
        node* call = parse_expression();
        if (call->kind != node_kind::call) wrong("want a call");
        parse_macro_body(macro, "endcall");
        return make(node_kind::call_block, {call, macro});
    }

    node* parse_with() {
        node* n = make(node_kind::with);
        while (now().kind != token_kind::block_end && status_ == DUET_OK) {
            if (!n->kids.empty()) want(",");
            add(n, parse_target({}, false));
            want("=");
            add(n, parse_expression());
        }
        add(n, parse_hard_block_to("endwith"));
        return n;
    }

    node* parse_named_block() {
        const std::string name(want_name());
        if (!blocks_.insert(name).second) wrong("block '" + printable(name) + "' is defined twice");
        while (is_any({"scoped", "required"})) step();
        node* n = make(node_kind::with, {parse_hard_block_to("endblock", false)});
        take(name);
        return n;
    }

    const template_limits& limits_;
    template_tree& tree_;
    error_text& err_;
    duet_status status_ = DUET_OK;
    std::vector<template_token> tokens_;
    std::vector<std::string> missing_;  // filters and tests that nothing knows, where that is an error
    std::unordered_set<std::string> blocks_;
    size_t at_ = 0;
    int depth_ = 0, macro_uses_ = 0;
    context context_;
};

}  // namespace

duet_status parse_template(std::string_view text, const template_limits& limits, template_tree* out, error_text& err) {
    out->source = with_line_ends(text);
    return template_parser(limits, out, err).parse();
}

}  // namespace duet
