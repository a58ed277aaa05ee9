// models/template_parse.cpp: the tokens of a template as a tree. Recursive descent over the grammar of Jinja 3.1.
// After an error every token reads as the end, so that all loops finish; the first error is kept.
// Source: the documentation of Jinja 3.1, "Template Designer Documentation"; details asked of the reference.
// Main path: models/template_lex -> [models/template_parse] -> models/template_run
#include "template_functions.h"
#include "template_text.h"
#include "template_tree.h"
#include "unicode.h"

#include <algorithm>
#include <unordered_set>

namespace duet {

int32_t template_tree::name_id(std::string_view name) {
    const auto [at, is_new] = name_index.try_emplace(std::string(name), (int32_t)names.size());
    if (is_new) names.emplace_back(name);
    return at->second;
}

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
        if (status_ == DUET_OK && !missing_.empty()) return err_.text = missing_[0], DUET_ERR_UNSUPPORTED;
        if (status_ == DUET_OK) find_hidden_names(&tree_);
        return status_;
    }

  private:
    // ---- tokens and errors ----

    const template_token& now() const { return tokens_[at_]; }
    const template_token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
    void step() { at_ = std::min(at_ + 1, tokens_.size() - 1); }

    void wrong(const std::string& what, duet_status status = DUET_ERR_FORMAT) {
        if (status_ == DUET_OK) {
            status_ = status;
            err_.text = "template line " + std::to_string(now().line) + ": " + what;
        }
        at_ = tokens_.size() - 1;
    }

    void want(const std::string& what) { wrong("want " + what + ", got " + describe(now())); }

    static std::string describe(const template_token& t) {
        switch (t.kind) {
        case token_kind::end: return "the end of the template";
        case token_kind::print_end: return "'}}'";
        case token_kind::block_end: return "'%}'";
        case token_kind::data:
        case token_kind::print_begin:
        case token_kind::block_begin: return "text";
        default: return "'" + printable(t.text) + "'";
        }
    }

    bool is_op(std::string_view op) const { return now().kind == token_kind::op && now().text == op; }
    bool is_word(std::string_view word) const { return now().kind == token_kind::name && now().text == word; }
    bool is_word(words list) const {
        return now().kind == token_kind::name && std::find(list.begin(), list.end(), now().text) != list.end();
    }
    bool take_op(std::string_view op) { return is_op(op) && (step(), true); }
    bool take_word(std::string_view word) { return is_word(word) && (step(), true); }
    void want_op(std::string_view op) {
        if (!take_op(op)) want("'" + std::string(op) + "'");
    }
    void want_kind(token_kind kind, const char* what) {
        if (now().kind == kind) step();
        else want(what);
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
            if (++p.depth_ > p.limits_.max_nesting)
                p.wrong("nested too deeply: want at most " + std::to_string(p.limits_.max_nesting) + " levels");
        }
        ~nesting() { p.depth_--; }
    };

    // ---- nodes ----

    node* make(node_kind kind, std::initializer_list<node*> kids = {}) {
        node& n = tree_.nodes.emplace_back();
        n.kind = kind;
        n.line = now().line;
        for (node* kid : kids) add(&n, kid);
        return &n;
    }

    void grow(node* n, const node* kid) {
        if (!kid) return;
        if (kid->height >= limits_.max_height)
            wrong("nested too deeply: want at most " + std::to_string(limits_.max_height) + " levels");
        n->height = std::max<uint16_t>(n->height, (uint16_t)(kid->height + 1));
    }

    void add(node* n, node* kid) {
        grow(n, kid);
        n->kids.push_back(kid);
    }

    node* constant(value v) {
        node* n = make(node_kind::constant);
        n->constant = std::move(v);
        return n;
    }

    node* with_op(node* n, uint8_t op) {
        n->op = op;
        return n;
    }

    node* name_node(std::string_view name) {
        node* n = make(node_kind::name);
        n->name = tree_.name_id(name);
        return n;
    }

    // ---- expressions, from the loosest operator to the tightest ----

    node* parse_expression(bool with_choice = true) {
        nesting level(this);
        if (!with_choice) return parse_either();
        const size_t n_missing = missing_.size();
        node* left = parse_either();
        while (is_word("if")) {
            missing_.resize(n_missing);  // what stands before the condition is only run when it is true
            const bool was_soft = std::exchange(is_soft_, true);
            step();
            node* n = make(node_kind::choice, {parse_either(), left});
            if (take_word("else")) add(n, parse_expression());
            else add(n, nullptr);
            left = n;
            is_soft_ = was_soft;
        }
        return left;
    }

    node* parse_either() {
        node* left = parse_both();
        while (take_word("or")) left = make(node_kind::either, {left, parse_both()});
        return left;
    }

    node* parse_both() {
        node* left = parse_not();
        while (take_word("and")) left = make(node_kind::both, {left, parse_not()});
        return left;
    }

    node* parse_not() {
        if (!is_word("not")) return parse_compare();
        nesting level(this);
        step();
        return with_op(make(node_kind::unary, {parse_not()}), '!');
    }

    char take_compare_op() {
        static constexpr std::pair<std::string_view, char> kOps[] = {
            {"==", kEqual}, {"!=", kUnequal}, {"<", kLess}, {"<=", kLessEqual}, {">", kGreater}, {">=", kGreaterEqual}};
        for (const auto& [text, op] : kOps)
            if (take_op(text)) return op;
        if (take_word("in")) return kIn;
        if (!is_word("not") || next().kind != token_kind::name || next().text != "in") return 0;
        step();
        step();
        return kNotIn;
    }

    node* parse_compare() {
        node* first = parse_sum();
        node* n = nullptr;
        std::string ops;
        while (const char op = take_compare_op()) {
            if (!n) n = make(node_kind::compare, {first});
            add(n, parse_sum());
            ops += op;
        }
        if (!n) return first;
        n->constant = value::of_trusted(ops);
        return n;
    }

    node* parse_sum() {
        node* left = parse_concat();
        while (is_op("+") || is_op("-")) {
            const char op = now().text[0];
            step();
            left = with_op(make(node_kind::binary, {left, parse_concat()}), (uint8_t)op);
        }
        return left;
    }

    node* parse_concat() {
        node* first = parse_product();
        if (!is_op("~")) return first;
        node* n = make(node_kind::concat, {first});
        while (take_op("~")) add(n, parse_product());
        return n;
    }

    node* parse_product() {
        node* left = parse_power();
        while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
            const char op = now().text == "//" ? 'D' : now().text[0];
            step();
            left = with_op(make(node_kind::binary, {left, parse_power()}), (uint8_t)op);
        }
        return left;
    }

    node* parse_power() {
        node* left = parse_unary(true);
        while (take_op("**")) left = with_op(make(node_kind::binary, {left, parse_unary(true)}), 'P');
        return left;
    }

    node* parse_unary(bool with_filters) {
        nesting level(this);
        node* n;
        if (is_op("-") || is_op("+")) {
            const char op = now().text[0];
            step();
            n = with_op(make(node_kind::unary, {parse_unary(false)}), (uint8_t)op);
        } else {
            n = parse_primary();
        }
        n = parse_postfix(n);
        return with_filters ? parse_filters_and_tests(n) : n;
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
        case token_kind::real: step(); return constant(number(text));
        default: break;
        }
        if (take_op("(")) {
            node* n = parse_tuple(false, true, {}, true);
            want_op(")");
            return n;
        }
        if (take_op("[")) return parse_list();
        if (take_op("{")) return parse_map();
        want("an expression");
        return constant({});
    }

    node* parse_word(std::string_view text) {
        if (text == "true" || text == "True") return constant(value::of_bool(true));
        if (text == "false" || text == "False") return constant(value::of_bool(false));
        if (text == "none" || text == "None") return constant({});
        macro_uses_ |= text == "caller"    ? kMacroCaller
                       : text == "kwargs"  ? kMacroKwargs
                       : text == "varargs" ? kMacroVarargs
                                           : 0;
        return name_node(text);
    }

    static value number(std::string_view text) {
        std::string digits;
        for (char c : text)
            if (c != '_') digits += c;
        if (digits.find_first_of(".eE") != digits.npos && digits[1] != 'x' && digits[1] != 'X') {
            double d = 0;
            read_double(digits, &d);
            return value::of_double(d);
        }
        const char letter = digits.size() > 1 ? (char)(digits[1] | 32) : '0';
        const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
        return integer_of_digits(std::string_view(digits).substr(base == 10 ? 0 : 2), base);
    }

    node* parse_list() {
        node* n = make(node_kind::list);
        while (!is_op("]") && status_ == DUET_OK) {
            if (!n->kids.empty()) want_op(",");
            if (is_op("]")) break;
            add(n, parse_expression());
        }
        want_op("]");
        return n;
    }

    node* parse_map() {
        node* n = make(node_kind::map);
        while (!is_op("}") && status_ == DUET_OK) {
            if (!n->kids.empty()) want_op(",");
            if (is_op("}")) break;
            add(n, parse_expression());
            want_op(":");
            add(n, parse_expression());
        }
        want_op("}");
        return n;
    }

    // One expression, or several with commas between them as a tuple. is_target: only names and literals.
    node* parse_tuple(bool is_target, bool with_choice, words ends, bool has_parentheses) {
        nesting level(this);
        node* n = make(node_kind::tuple);
        bool is_tuple = false;
        while (status_ == DUET_OK) {
            if (now().kind == token_kind::print_end || now().kind == token_kind::block_end || is_op(")") ||
                is_word(ends))
                break;
            add(n, is_target ? parse_target_item() : parse_expression(with_choice));
            if (!take_op(",")) break;
            is_tuple = true;
        }
        if (!is_tuple && n->kids.size() == 1) return n->kids[0];
        if (!is_tuple && !has_parentheses) want("an expression");
        return n;
    }

    node* parse_target_item() {
        if (now().kind != token_kind::name || next().kind != token_kind::op || next().text != ".")
            return parse_primary();
        node* n = name_node(now().text);
        n->kind = node_kind::member;
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
            if (take_op(".")) n = parse_attribute(n);
            else if (take_op("[")) n = parse_subscript(n);
            else if (is_op("(")) n = parse_call(n);
            else return n;
        }
    }

    node* parse_attribute(node* object) {
        const std::string_view text = now().text;
        if (now().kind == token_kind::integer) {
            step();
            return make(node_kind::item, {object, constant(number(text))});
        }
        node* n = make(node_kind::attribute, {object});
        n->constant = value::of_trusted(std::string(text));
        want_kind(token_kind::name, "a name or number");
        return n;
    }

    node* parse_subscript(node* object) {
        node* subscript = make(node_kind::tuple);
        do {
            if (is_op("]")) break;
            add(subscript, parse_slice());
        } while (take_op(","));
        want_op("]");
        return make(node_kind::item, {object, subscript->kids.size() == 1 ? subscript->kids[0] : subscript});
    }

    node* parse_slice() {
        node* first = is_op(":") ? nullptr : parse_expression();
        if (!take_op(":")) return first;
        auto parse_part = [&] { return is_op(":") || is_op("]") || is_op(",") ? nullptr : parse_expression(); };
        node* end = parse_part();
        node* step = take_op(":") ? parse_part() : nullptr;
        return make(node_kind::slice, {first, end, step});
    }

    node* parse_call(node* function) {
        node* n = make(node_kind::call, {function});
        parse_arguments(n);
        return n;
    }

    void parse_arguments(node* n) {
        want_op("(");
        for (bool is_first = true; !is_op(")") && status_ == DUET_OK; is_first = false) {
            if (!is_first) want_op(",");
            if (is_op(")")) break;
            const bool is_named = now().kind == token_kind::name && next().kind == token_kind::op && next().text == "=";
            if (take_op("**")) {
                if (n->star_star) wrong("want one '**'");
                grow(n, n->star_star = parse_expression());
            } else if (n->star_star) {
                want("')' after '**'");
            } else if (take_op("*")) {
                if (n->star) wrong("want one '*'");
                grow(n, n->star = parse_expression());
            } else if (is_named) {
                const int32_t name = tree_.name_id(now().text);
                if (std::find(n->names.begin(), n->names.end(), name) != n->names.end())
                    wrong("an argument is named twice");
                step();
                step();
                n->names.push_back(name);
                add(n, parse_expression());
            } else {
                if (!n->names.empty() || n->star) want("a named argument");
                add(n, parse_expression());
            }
        }
        want_op(")");
    }

    node* parse_filters_and_tests(node* n) {
        while (true) {
            if (is_op("|")) n = parse_filters(n, false);
            else if (is_word("is")) n = parse_test(n);
            else if (is_op("(")) n = parse_call(n);
            else return n;
        }
    }

    std::string dotted_name() {
        std::string name(want_name());
        while (take_op(".")) name += "." + std::string(want_name());
        return name;
    }

    // operand may be nullptr: what a block captures. is_inline: the first filter stands there without its bar.
    node* parse_filters(node* operand, bool is_inline) {
        if (!operand) operand = make(node_kind::captured);
        while (is_inline || take_op("|")) {
            is_inline = false;
            node* n = make(node_kind::filter, {operand});
            set_function(n, dotted_name(), "filter");
            if (is_op("(")) parse_arguments(n);
            operand = n;
        }
        return operand;
    }

    void set_function(node* n, const std::string& name, const char* what) {
        n->function = n->kind == node_kind::filter ? find_filter(name) : find_test(name);
        n->constant = value::of_trusted(name);
        if (!n->function && !is_soft_)
            missing_.push_back("template line " + std::to_string(now().line) + ": no " + what + " named '" +
                               printable(name) + "'");
    }

    node* parse_test(node* operand) {
        step();  // is
        const bool is_negated = take_word("not");
        node* n = make(node_kind::test, {operand});
        set_function(n, dotted_name(), "test");
        const token_kind kind = now().kind;
        if (is_op("(")) {
            parse_arguments(n);
        } else if (((kind == token_kind::name && !is_word({"else", "or", "and"})) || kind == token_kind::string ||
                    kind == token_kind::integer || kind == token_kind::real || is_op("[") || is_op("{"))) {
            if (is_word("is")) wrong("tests cannot be chained with 'is'");
            add(n, parse_postfix(parse_primary()));
        }
        return is_negated ? with_op(make(node_kind::unary, {n}), '!') : n;
    }

    // ---- statements ----

    // Statements up to a tag whose name is in ends; that name is the current token then. No ends: up to the end.
    node* parse_body(words ends) {
        nesting level(this);
        node* body = make(node_kind::body);
        while (true) {
            const template_token& token = now();
            if (token.kind == token_kind::data) {
                node* n = make(node_kind::data);
                n->constant = value::of_trusted(std::string(token.text));
                add(body, n);
                step();
            } else if (token.kind == token_kind::print_begin) {
                step();
                add(body, make(node_kind::print, {parse_tuple(false, true, {}, false)}));
                want_kind(token_kind::print_end, "'}}'");
            } else if (token.kind == token_kind::block_begin) {
                step();
                if (is_word(ends)) return body;
                add(body, parse_statement());
                want_kind(token_kind::block_end, "'%}'");
            } else {
                if (ends.size() > 0) want("'" + std::string(*ends.begin()) + "'");
                return body;
            }
        }
    }

    // The rest of a tag, the statements it holds, and the name of the tag that ends them.
    node* parse_block(words ends) {
        take_op(":");
        want_kind(token_kind::block_end, "'%}'");
        return parse_body(ends);
    }

    node* parse_block_to(std::string_view end) {
        node* body = parse_block({end});
        step();
        return body;
    }

    // What stands in a scope of its own, where a filter has to exist even when it is never run.
    node* parse_hard_block_to(std::string_view end) {
        const bool was_soft = std::exchange(is_soft_, false);
        node* body = parse_block_to(end);
        is_soft_ = was_soft;
        return body;
    }

    node* parse_statement() {
        const std::string_view tag = now().text;
        using parse_fn = node* (template_parser::*)();
        static constexpr std::pair<std::string_view, parse_fn> kTags[] = {
            {"for", &template_parser::parse_for},
            {"if", &template_parser::parse_if},
            {"set", &template_parser::parse_set},
            {"macro", &template_parser::parse_macro},
            {"call", &template_parser::parse_call_block},
            {"filter", &template_parser::parse_filter_block},
            {"with", &template_parser::parse_with},
            {"print", &template_parser::parse_print},
            {"generation", &template_parser::parse_generation},
            {"autoescape", &template_parser::parse_autoescape},
            {"block", &template_parser::parse_named_block},
            {"break", &template_parser::parse_break},
            {"continue", &template_parser::parse_break},
        };
        for (const auto& [name, parse] : kTags)
            if (take_word(name)) return (this->*parse)();
        if (is_word({"include", "import", "from", "extends"})) {
            node* n = make(node_kind::unsupported);
            n->constant = value::of_trusted(std::string(tag));
            while (now().kind != token_kind::block_end && now().kind != token_kind::end) step();
            return n;
        }
        wrong("unknown tag " + describe(now()));
        return make(node_kind::body);
    }

    node* parse_for() {
        node* target = parse_target({"in"}, false);
        if (!take_word("in")) want("'in'");
        node* iterable = parse_tuple(false, false, {"recursive"}, false);
        node* condition = take_word("if") ? parse_expression() : nullptr;
        const bool is_recursive = take_word("recursive");
        const bool was_soft = std::exchange(is_soft_, false), was_in_loop = std::exchange(is_in_loop_, true);
        node* n = make(node_kind::for_loop, {target, iterable, condition, parse_block({"endfor", "else"})});
        is_in_loop_ = was_in_loop;
        add(n, take_word("else") ? parse_block({"endfor"}) : nullptr);
        step();
        is_soft_ = was_soft;
        return with_op(n, is_recursive ? 'r' : 0);
    }

    node* parse_if() {
        node* n = make(node_kind::if_chain);
        const bool was_soft = std::exchange(is_soft_, true);
        while (true) {
            add(n, parse_tuple(false, false, {}, false));
            add(n, parse_block({"elif", "else", "endif"}));
            if (take_word("elif")) continue;
            if (take_word("else")) add(n, parse_block({"endif"}));
            step();
            is_soft_ = was_soft;
            return n;
        }
    }

    node* parse_set() {
        node* target = parse_target({}, true);
        if (take_op("=")) return make(node_kind::assign, {target, parse_tuple(false, true, {}, false)});
        node* filters = is_op("|") ? parse_filters(nullptr, false) : nullptr;
        return make(node_kind::capture, {target, filters, parse_hard_block_to("endset")});
    }

    void parse_signature(node* n) {
        want_op("(");
        while (!is_op(")") && status_ == DUET_OK) {
            if (!n->names.empty()) want_op(",");
            const bool had_default = n->kids.size() > 1 && n->kids.back();
            n->names.push_back(tree_.name_id(want_name()));
            add(n, take_op("=") ? parse_expression() : nullptr);
            if (had_default && !n->kids.back()) wrong("an argument without a default follows one that has a default");
        }
        want_op(")");
    }

    node* finish_macro(node* n, std::string_view end) {
        const int outer_uses = std::exchange(macro_uses_, 0);
        const bool was_in_loop = std::exchange(is_in_loop_, false);
        n->kids[0] = parse_hard_block_to(end);
        grow(n, n->kids[0]);
        n->op = (uint8_t)macro_uses_;
        macro_uses_ |= outer_uses;
        is_in_loop_ = was_in_loop;
        return n;
    }

    node* parse_macro() {
        node* n = make(node_kind::macro, {nullptr});
        n->name = tree_.name_id(want_name());
        parse_signature(n);
        return finish_macro(n, "endmacro");
    }

    node* parse_call_block() {
        node* macro = make(node_kind::macro, {nullptr});
        macro->name = tree_.name_id("caller");
        if (is_op("(")) parse_signature(macro);
        node* call = parse_expression();
        if (call->kind != node_kind::call) wrong("want a call");
        finish_macro(macro, "endcall");
        return make(node_kind::call_block, {call, macro});
    }

    node* parse_filter_block() {
        node* filters = parse_filters(nullptr, true);
        return make(node_kind::capture, {nullptr, filters, parse_hard_block_to("endfilter")});
    }

    node* parse_with() {
        node* n = make(node_kind::with);
        while (now().kind != token_kind::block_end && status_ == DUET_OK) {
            if (!n->kids.empty()) want_op(",");
            add(n, parse_target({}, false));
            want_op("=");
            add(n, parse_expression());
        }
        add(n, parse_hard_block_to("endwith"));
        return n;
    }

    node* parse_print() { return make(node_kind::print, {parse_tuple(false, true, {}, false)}); }

    node* parse_scope_to(std::string_view end) {
        const bool was_in_loop = std::exchange(is_in_loop_, false);
        node* n = make(node_kind::with, {parse_hard_block_to(end)});
        is_in_loop_ = was_in_loop;
        return n;
    }

    node* parse_generation() { return parse_scope_to("endgeneration"); }

    node* parse_named_block() {
        const std::string name(want_name());
        if (!blocks_.insert(name).second) wrong("block '" + printable(name) + "' is defined twice");
        while (is_word({"scoped", "required"})) step();
        node* n = parse_scope_to("endblock");
        take_word(name);
        return n;
    }

    node* parse_autoescape() {
        node* condition = parse_expression();
        return make(node_kind::autoescape, {condition, parse_hard_block_to("endautoescape")});
    }

    node* parse_break() {
        if (!is_in_loop_) wrong("'break' or 'continue' outside of a loop");
        return make(tokens_[at_ - 1].text == "break" ? node_kind::break_loop : node_kind::continue_loop);
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
    bool is_in_loop_ = false;
    bool is_soft_ = false;  // inside of a condition, where a missing filter is an error only when it is run
};

}  // namespace

duet_status parse_template(std::string_view source, const template_limits& limits, template_tree* out,
                           error_text& err) {
    out->source.reserve(source.size());
    for (size_t i = 0; i < source.size(); i++) {
        if (source[i] != '\r') out->source += source[i];
        else if (i + 1 == source.size() || source[i + 1] != '\n') out->source += '\n';
    }
    if (!out->source.empty() && out->source.back() == '\n') out->source.pop_back();
    return template_parser(limits, out, err).parse();
}

}  // namespace duet
