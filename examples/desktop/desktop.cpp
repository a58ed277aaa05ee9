// examples/desktop/desktop.cpp: a chat window: models of a folder, a device, what memory they need, loading with its
// progress and a way out of it, answers as they come, a stop button. Qt 6 and runtime.h, C++20.
//   apt-get install qt6-base-dev && make desktop && build/release/desktop [FOLDER or MODEL.gguf]
// The window never waits: whatever takes time is a job on the thread of `worker`, which tells the window by events.
#include <runtime.h>

#include <QApplication>
#include <QCloseEvent>
#include <QComboBox>
#include <QDir>
#include <QFileDialog>
#include <QFileInfo>
#include <QGridLayout>
#include <QLabel>
#include <QLineEdit>
#include <QMainWindow>
#include <QPlainTextEdit>
#include <QProgressBar>
#include <QPushButton>
#include <QRegularExpression>
#include <QScrollBar>
#include <QShortcut>
#include <QSpinBox>
#include <QStandardItemModel>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

// Handles that free themselves.
template <auto free_handle> struct freeing {
    template <class T> void operator()(T* handle) const { free_handle(handle); }
};
template <class T, auto free_handle> using owned = std::unique_ptr<T, freeing<free_handle>>;

struct choice {  // what is to be loaded
    std::string path, device;
    int32_t n_ctx;
};
struct device_row {
    std::string id, text, why;
    bool is_usable;
    uint64_t memory_bytes, free_bytes;
};
enum class voice { user, model, thinking, note, error };

// What the worker tells. It calls these on its own thread.
struct listener {
    std::function<void(float share)> progress;
    std::function<void(std::string error)> loaded;  // "": it is ready
    std::function<void(const std::string& text, voice)> said;
    std::function<void()> answered;
};

// The thread of the model. Its functions but the jobs are the window's.
class worker {
  public:
    explicit worker(listener l) : listener_(std::move(l)), thread_([this] { run(); }) {}
    ~worker() {
        stop();
        add(nullptr);  // jobs before it end at once
        thread_.join();
    }
    void add(std::function<void()> job) {
        const std::lock_guard lock(mutex_);
        jobs_.push_back(std::move(job));
        wake_.notify_one();
    }
    // Loading ends at its next step, an answer within 100 ms. Every job that was added before is stopped.
    void stop() {
        const std::lock_guard lock(mutex_);
        n_stopped_ = n_started_;
        if (answering_) duet_session_cancel(answering_);
    }

    void load(const choice& c) {
        add([this, c, number = ++n_started_] { listener_.loaded(open(c, number)); });
    }
    void answer(const std::string& text) {
        add([this, text, number = ++n_started_] {
            answer_to(text, number);
            listener_.answered();
        });
    }
    void forget() {
        add([this] {
            if (chat_) (void)duet_chat_remove(chat_.get(), 0, duet_chat_count(chat_.get()));
        });
    }

  private:
    bool is_stopped(int number) const { return n_stopped_ >= number; }

    void run() {
        for (;;) {
            std::function<void()> job;
            {
                std::unique_lock lock(mutex_);
                wake_.wait(lock, [this] { return !jobs_.empty(); });
                job = std::move(jobs_.front());
                jobs_.pop_front();
            }
            if (!job) return;
            job();
        }
    }

    // Returns why it failed, or "".
    std::string open(const choice& c, int number) {
        chat_.reset(), sampler_.reset(), session_.reset(), model_.reset();  // in this order, and before the new one
        loading_ = number;
        duet_model_params params = duet_model_params_default();
        params.device = c.device.c_str();
        params.progress_user = this;
        params.progress = [](void* user, float share) -> int32_t {
            const worker& w = *(const worker*)user;
            w.listener_.progress(share);
            return w.is_stopped(w.loading_);
        };
        duet_model* model = nullptr;
        const duet_status opened = duet_model_open(c.path.c_str(), &params, &model);
        owned<duet_model, duet_model_free> new_model(model);
        if (opened != DUET_OK) return duet_model_error(model);
        duet_session_params limits = duet_session_params_default();
        limits.n_ctx = c.n_ctx;
        duet_session* session = nullptr;
        const duet_status created = duet_session_create(model, &limits, &session);
        owned<duet_session, duet_session_free> new_session(session);
        if (created != DUET_OK) return duet_session_error(session);
        duet_chat* chat = nullptr;
        const duet_status began = duet_chat_create(model, nullptr, &chat);
        owned<duet_chat, duet_chat_free> new_chat(chat);
        if (began != DUET_OK) return duet_chat_error(chat);
        duet_sampler* sampler = nullptr;
        duet_status made = duet_sampler_create(std::random_device()(), &sampler);
        owned<duet_sampler, duet_sampler_free> new_sampler(sampler);
        if (made == DUET_OK) made = duet_sampler_set(sampler, "temp", 0.7f);
        if (made != DUET_OK) return duet_sampler_error(sampler);
        model_ = std::move(new_model), session_ = std::move(new_session);
        sampler_ = std::move(new_sampler), chat_ = std::move(new_chat);
        return "";
    }

    void answer_to(const std::string& text, int number) {
        duet_status status = duet_chat_add(chat_.get(), "user", text.data(), text.size());
        while (status == DUET_OK) {
            owned<duet_chat_turn, duet_chat_turn_free> turn;
            status = begin_turn(&turn);
            if (status != DUET_OK) (void)duet_chat_remove(chat_.get(), duet_chat_count(chat_.get()) - 1, 1);
            duet_chat_event event{};
            event.struct_size = sizeof event;
            bool was_thinking = false;
            set_answering(session_.get());
            while (status == DUET_OK && event.kind != DUET_CHAT_END && !is_stopped(number)) {
                status = duet_chat_next(turn.get(), &event);
                const std::string piece(event.text.data ? event.text.data : "", event.text.n_bytes);
                if (event.kind == DUET_CHAT_TEXT) listener_.said((was_thinking ? "\n" : "") + piece, voice::model);
                if (event.kind == DUET_CHAT_THINKING) listener_.said(piece, voice::thinking);
                was_thinking = event.kind == DUET_CHAT_THINKING;
            }
            set_answering(nullptr);
            if (status != DUET_ERR_CANCELLED || is_stopped(number)) break;
            // A stop that met the last answer at its end has stopped this one instead: it begins again.
            turn.reset();
            status = duet_chat_remove(chat_.get(), duet_chat_count(chat_.get()) - 1, 1);
        }
        if (is_stopped(number)) listener_.said(" [stopped]", voice::note);
        else if (status != DUET_OK) listener_.said(std::string("\n") + duet_chat_error(chat_.get()), voice::error);
    }

    // A conversation that has grown too long loses its oldest messages.
    duet_status begin_turn(owned<duet_chat_turn, duet_chat_turn_free>* out) {
        for (;;) {
            duet_chat_turn* turn = nullptr;
            const duet_status status = duet_chat_begin(chat_.get(), session_.get(), sampler_.get(), nullptr, &turn);
            out->reset(turn);
            if (status != DUET_ERR_FULL || duet_chat_count(chat_.get()) < 3) return status;
            if (const duet_status removed = duet_chat_remove(chat_.get(), 0, 2)) return removed;
        }
    }
    void set_answering(duet_session* session) {
        const std::lock_guard lock(mutex_);
        answering_ = session;
    }

    const listener listener_;
    owned<duet_model, duet_model_free> model_;
    owned<duet_session, duet_session_free> session_;
    owned<duet_sampler, duet_sampler_free> sampler_;
    owned<duet_chat, duet_chat_free> chat_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<std::function<void()>> jobs_;
    duet_session* answering_ = nullptr;
    int n_started_ = 0;  // the window's
    int loading_ = 0;    // the number of the loading that runs
    std::atomic<int> n_stopped_ = 0;
    std::thread thread_;  // last: it uses the others
};

static std::vector<device_row> list_devices() {
    std::vector<device_row> rows;
    const auto add = [](void* user, const duet_device_info* d) {
        if (std::string_view(d->why).starts_with("for tests")) return;
        const std::string name = std::string(d->id) + (*d->name ? std::string(": ") + d->name : "");
        ((std::vector<device_row>*)user)
            ->push_back({d->id, name, d->why, d->is_usable != 0, d->memory_bytes, d->free_bytes});
    };
    (void)duet_list_devices(add, &rows);
    return rows;
}

static QString size_text(uint64_t n_bytes) {
    return n_bytes < 1'000'000'000 ? QString("%1 MB").arg((double)n_bytes / 1e6, 0, 'f', 1)
                                   : QString("%1 GB").arg((double)n_bytes / 1e9, 0, 'f', 1);
}

// What a choice would need. Without a progress function the weights are not read: this is quick, and allocates nothing.
static QString estimate(const choice& c, const std::vector<device_row>& devices, bool* is_error) {
    *is_error = true;
    duet_model_params params = duet_model_params_default();
    params.device = c.device.c_str();
    duet_model* opened = nullptr;
    const duet_status status = duet_model_open(c.path.c_str(), &params, &opened);
    const owned<duet_model, duet_model_free> model(opened);
    if (status != DUET_OK) return duet_model_error(opened);
    duet_session_params limits = duet_session_params_default();
    limits.n_ctx = c.n_ctx;
    duet_memory_plan p{};
    p.struct_size = sizeof p;
    if (duet_session_plan(opened, &limits, &p) != DUET_OK) return duet_model_error(opened);
    const uint64_t on_card = p.gpu_weight_bytes + p.gpu_cache_bytes + p.gpu_state_bytes + p.gpu_work_bytes,
                   weights = p.weight_bytes - std::min(p.weight_bytes, p.gpu_weight_bytes),
                   need = weights + p.cache_bytes + p.state_bytes + p.work_bytes + p.pinned_bytes;
    const uint64_t free_bytes = devices.empty() ? 0 : devices[0].free_bytes;
    QString text = QString("Needs %1 of memory: weights %2, cache %3, work %4; %5 are free.")
                       .arg(size_text(need), size_text(weights), size_text(p.cache_bytes + p.state_bytes),
                            size_text(p.work_bytes + p.pinned_bytes), size_text(free_bytes));
    if (on_card) text += QString(" On the card: %1, %2 layers.").arg(size_text(on_card)).arg(p.gpu_layers);
    *is_error = free_bytes && need > free_bytes;
    return *is_error ? text + " That is more than this machine has to give." : text;
}

class chat_window : public QMainWindow {
  public:
    explicit chat_window(const QString& start) {
        auto* page = new QWidget;
        auto* grid = new QGridLayout(page);
        const auto add = [&](QWidget* widget, int row, int column, int span = 1) {
            grid->addWidget(widget, row, column, 1, span);
        };
        add(&folder_, 0, 0), add(&models_, 0, 1), add(&devices_, 0, 2), add(&context_, 0, 3), add(&load_, 0, 4);
        add(&estimate_, 1, 0, 4), add(&progress_, 1, 4);
        add(&talk_, 2, 0, 5);
        add(&input_, 3, 0, 3), add(&forget_, 3, 3), add(&send_, 3, 4);
        grid->setColumnStretch(1, 1);
        setCentralWidget(page);
        resize(860, 560);
        context_.setRange(0, 1 << 20), context_.setSingleStep(1024), context_.setSpecialValueText("context: auto");
        estimate_.setWordWrap(true);
        estimate_.setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
        talk_.setReadOnly(true);
        input_.setPlaceholderText("Ask something");

        connect(&folder_, &QPushButton::clicked, this, [this] {
            const QString folder = QFileDialog::getExistingDirectory(this, "Folder of models", folder_name_);
            if (!folder.isEmpty()) show_folder(folder, "");
        });
        for (QComboBox* box : {&models_, &devices_})
            connect(box, &QComboBox::currentIndexChanged, this, [this] { show_estimate(); });
        connect(&context_, &QSpinBox::valueChanged, this, [this] { show_estimate(); });
        connect(&load_, &QPushButton::clicked, this, [this] { state_ == state::loading ? worker_->stop() : load(); });
        connect(&send_, &QPushButton::clicked, this, [this] { state_ == state::answering ? worker_->stop() : send(); });
        connect(&input_, &QLineEdit::returnPressed, this, [this] { send(); });
        connect(&forget_, &QPushButton::clicked, this, [this] { worker_->forget(), talk_.clear(); });
        connect(new QShortcut(QKeySequence::Quit, this), &QShortcut::activated, this, [this] { close(); });

        worker_.emplace(listener{
            [this](float share) { tell([this, share] { progress_.setValue((int)(share * 100)); }); },
            [this](const std::string& error) { tell([this, error] { loaded(error); }); },
            [this](const std::string& text, voice v) { add_words(text, v); },
            [this] {
                tell([this] { show_words(), put("\n", voice::note), set_state(state::ready), input_.setFocus(); });
            }});
        const QFileInfo info(start);
        show_folder(info.isFile() ? info.path() : start, info.isFile() ? info.fileName() : "");
        set_state(state::empty);
        worker_->add([this] {  // asking drivers may take a second
            const auto rows = list_devices();
            tell([this, rows] { show_devices(rows); });
        });
    }

  protected:
    void closeEvent(QCloseEvent* event) override {
        worker_.reset();  // stops what runs and waits for it: within 100 ms
        event->accept();
    }

  private:
    enum class state { empty, loading, ready, answering };

    // Runs work on the window's thread, from any other.
    void tell(std::function<void()> work) {
        const auto unless_closed = [this, work = std::move(work)] { return worker_ ? work() : void(); };
        QMetaObject::invokeMethod(this, unless_closed, Qt::QueuedConnection);
    }

    void set_state(state s) {
        state_ = s;
        const bool is_busy = s == state::loading || s == state::answering;
        for (QWidget* w : std::initializer_list<QWidget*>{&folder_, &models_, &devices_, &context_, &forget_})
            w->setEnabled(!is_busy);
        load_.setText(s == state::loading ? "Cance&l" : "&Load");
        load_.setEnabled(s != state::answering && models_.count() > 0);
        send_.setText(s == state::answering ? "&Stop" : "&Send");
        send_.setEnabled(s == state::ready || s == state::answering);
        progress_.setVisible(s == state::loading);
        const char* doing[] = {"no model", "loading", "ready", "answering"};
        setWindowTitle(QString("Duet: %1").arg(doing[(int)s]) + (model_name_.isEmpty() ? "" : ", " + model_name_));
    }

    void show_folder(const QString& folder, const QString& chosen) {
        folder_name_ = folder;
        const QSignalBlocker quiet(&models_);
        models_.clear();
        for (const QString& name : QDir(folder).entryList({"*.gguf"}, QDir::Files))
            if (!name.contains(QRegularExpression("-\\d{5}-of-\\d{5}\\.gguf$")) || name.contains("-00001-of-"))
                models_.addItem(name);
        models_.setCurrentIndex(std::max(0, models_.findText(chosen)));
        load_.setEnabled(models_.count() > 0);
        if (models_.count() == 0) estimate_.setText("No .gguf file in " + folder);
        show_estimate();
    }

    void show_devices(const std::vector<device_row>& rows) {
        device_rows_ = rows;
        const QSignalBlocker quiet(&devices_);
        devices_.addItem("auto");
        for (const device_row& row : rows) {
            devices_.addItem(QString::fromStdString(row.text), QString::fromStdString(row.id));
            devices_.setItemData(devices_.count() - 1, QString::fromStdString(row.why), Qt::ToolTipRole);
            ((QStandardItemModel*)devices_.model())->item(devices_.count() - 1)->setEnabled(row.is_usable);
        }
        show_estimate();
    }

    choice chosen() const {
        const QString id = devices_.currentData().toString();
        return {QDir(folder_name_).filePath(models_.currentText()).toStdString(),
                id.isEmpty() ? "auto" : id.toStdString(), context_.value()};
    }

    void show_estimate() {
        if (models_.count() == 0 || devices_.count() == 0) return;
        worker_->add([this, c = chosen(), rows = device_rows_, number = ++n_estimates_] {
            if (number != n_estimates_) return;  // another one was chosen since
            bool is_error = false;
            const QString text = estimate(c, rows, &is_error);
            tell([this, text, is_error] {
                estimate_.setText(text);
                estimate_.setStyleSheet(is_error ? "color: #b00020" : "");
            });
        });
    }

    void load() {
        model_name_ = models_.currentText();
        progress_.setValue(0);
        set_state(state::loading);
        worker_->load(chosen());
    }
    void loaded(const std::string& error) {
        if (error.empty()) put("Loaded " + model_name_ + ".\n", voice::note);
        else put("Not loaded: " + QString::fromStdString(error) + "\n", voice::error);
        set_state(error.empty() ? state::ready : state::empty);
        input_.setFocus();
    }

    void send() {
        const QString text = input_.text().trimmed();
        if (state_ != state::ready || text.isEmpty()) return;
        input_.clear();
        put("\n" + text + "\n", voice::user);
        set_state(state::answering);
        worker_->answer(text.toStdString());
    }

    // Words come faster than a screen shows them: they wait in words_, and one event takes them all.
    void add_words(const std::string& text, voice v) {
        const std::lock_guard lock(words_mutex_);
        if (words_.empty()) tell([this] { show_words(); });
        if (words_.empty() || words_.back().second != v) words_.push_back({"", v});
        words_.back().first += text;
    }
    void show_words() {
        std::deque<std::pair<std::string, voice>> words;
        {
            const std::lock_guard lock(words_mutex_);
            words.swap(words_);
        }
        for (const auto& [text, v] : words) put(QString::fromStdString(text), v);
    }
    void put(const QString& text, voice v) {
        const char* colours[] = {"#1a4fa0", "", "#777777", "#777777", "#b00020"};
        QTextCharFormat format;
        if (*colours[(int)v]) format.setForeground(QColor(colours[(int)v]));
        format.setFontItalic(v == voice::thinking);
        format.setFontWeight(v == voice::user ? QFont::Bold : QFont::Normal);
        QScrollBar* bar = talk_.verticalScrollBar();
        const bool is_at_end = bar->value() == bar->maximum();
        QTextCursor cursor(talk_.document());
        cursor.movePosition(QTextCursor::End);
        cursor.insertText(text, format);
        if (is_at_end) bar->setValue(bar->maximum());
    }

    QPushButton folder_{"&Folder..."}, load_{"&Load"}, send_{"&Send"}, forget_{"&New chat"};
    QComboBox models_, devices_;
    QSpinBox context_;
    QLabel estimate_;
    QProgressBar progress_;
    QPlainTextEdit talk_;
    QLineEdit input_;
    QString folder_name_, model_name_;
    std::vector<device_row> device_rows_;
    std::atomic<int> n_estimates_ = 0;
    state state_ = state::empty;
    std::mutex words_mutex_;
    std::deque<std::pair<std::string, voice>> words_;
    std::optional<worker> worker_;  // last: its thread tells the others
};

int main(int argc, char** argv) {
    QApplication app(argc, argv);
    chat_window window(argc > 1 ? QString::fromLocal8Bit(argv[1]) : QDir::currentPath());
    window.show();
    return app.exec();
}
