// models/chat_forms.cpp: finds the form that a template writes, using chat_forms.def.
#include "chat_machine.h"

namespace duet {

// ---- choosing -------------------------------------------------------------------------------------------------------

static bool has_text(std::string_view text, std::string_view needle) { return text.find(needle) != text.npos; }

chat_form choose_form(std::string_view text) {
    static const struct {
        chat_form form;
        const char *a, *b, *absent;
    } kSigns[] = {
#define CHAT_SIGN(form, a, b, absent) {chat_form::form, a, b, absent},
#include "chat_forms.def"
#undef CHAT_SIGN
    };
    for (const auto& s : kSigns)
        if (has_text(text, s.a) && has_text(text, s.b) && (!*s.absent || !has_text(text, s.absent))) return s.form;
    return chat_form::none;
}

static const thinking_markers kThinking[] = {
    {"", ""},
#define CHAT_THINKING(id, name, open, close) {open, close},
#include "chat_forms.def"
#undef CHAT_THINKING
};

const thinking_markers& thinking_markers_of(chat_thinking thinking) { return kThinking[(size_t)thinking]; }

chat_thinking choose_thinking(std::string_view text) {
    for (size_t i = 1; i < std::size(kThinking); i++)
        if (has_text(text, kThinking[i].close) || has_text(text, kThinking[i].open)) return (chat_thinking)i;
    return chat_thinking::none;
}

static const std::pair<const char*, bool> kForms[] = {
#define CHAT_FORM(id, name, parallel) {name, parallel},
#include "chat_forms.def"
#undef CHAT_FORM
};

const char* form_name(chat_form form) { return kForms[(size_t)form].first; }
bool is_parallel(chat_form form) { return kForms[(size_t)form].second; }

bool find_form(std::string_view name, chat_form* form) {
    for (size_t i = 0; i < std::size(kForms); i++)
        if (name == kForms[i].first) return *form = (chat_form)i, true;
    return false;
}

std::string chat_form_names() {
    std::string names;
    for (const auto& form : kForms) names += (names.empty() ? "" : ", ") + std::string(form.first);
    return names;
}

bool prompt_opens_thinking(std::string_view prompt, chat_thinking thinking) {
    while (!prompt.empty() && is_blank(prompt.back())) prompt.remove_suffix(1);
    const std::string_view open = thinking_markers_of(thinking).open;
    return !open.empty() && prompt.ends_with(open);
}

}  // namespace duet
