// tools/plot.h: draws what bench measured as an SVG: panels side by side, in each a line through points, with the range
// of each point and the machine's limit.
// Owns: scales, ticks and the form of the picture. Must not know: what was measured.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

struct plot_point {
    std::string place;  // on the axis below
    double median, slowest, fastest, limit;
};
struct plot_panel {
    std::string title, below;
    bool is_log;  // the axis has powers at equal distances; else it begins at 0
    std::vector<plot_point> points = {};
};

class plot {
  public:
    // Returns the picture. The texts are plain; the notes stand below the panels, a line each.
    static std::string draw(const std::string& title, const std::vector<plot_panel>& panels,
                            const std::vector<std::string>& notes) {
        plot p;
        p.put("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\">\n<style>%s</style>\n"
              "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
              kLeft + (kPanel + kGap) * (int)panels.size() - 10, kTop + kTall + 60 + 17 * (int)notes.size(), kStyle);
        p.text("note", kLeft, 26, title);
        p.put("<path class=\"line\" d=\"M%d 51h30\"/><circle cx=\"%d\" cy=\"51\" r=\"4\"/>\n", kLeft, kLeft + 15);
        p.text("note", kLeft + 38, 55, "measured: the median, from the slowest to the fastest");
        p.put("<path class=\"limit\" d=\"M%d 51h30\"/>\n", kLeft + 400);
        p.text("note", kLeft + 438, 55, "the machine's limit");
        for (size_t i = 0; i < panels.size(); i++) p.draw_panel(kLeft + (kPanel + kGap) * (int)i, panels[i]);
        for (size_t i = 0; i < notes.size(); i++) p.text("note", kLeft, kTop + kTall + 70 + 17 * (double)i, notes[i]);
        return p.out_ + "</svg>\n";
    }

  private:
    static constexpr int kLeft = 70, kTop = 110, kPanel = 360, kGap = 90, kTall = 270;
    static constexpr const char* kStyle =
        "text{font:13px sans-serif;fill:#333;text-anchor:middle}.title{font-size:15px;font-weight:bold}.tick{text-"
        "anchor:end}.title,.note{text-anchor:start}.note{font-size:12px;fill:#555}path{fill:none;stroke:#1f6fb2}circle{"
        "fill:#1f6fb2}.grid{stroke:#ddd}.line{stroke-width:2.5}.limit{stroke:#c0392b;stroke-width:2;stroke-dasharray:6 "
        "4}";
    std::string out_;

    template <class... Args> void put(const char* format, Args... args) {
        char text[1024];
        std::snprintf(text, sizeof text, format, args...);
        out_ += text;
    }
    void text(const char* style, double x, double y, const std::string& what) {
        put("<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", style, x, y);
        for (char c : what) out_ += c == '&' ? "&amp;" : c == '<' ? "&lt;" : std::string(1, c);
        out_ += "</text>\n";
    }
    void number(const char* style, double x, double y, double value) {
        char digits[32];
        std::snprintf(digits, sizeof digits, value < 100 ? "%.3g" : "%.0f", value);
        text(style, x, y, digits);
    }

    // From the axis' lower to its upper end: numbers that are 1, 2 or 5 times a power of ten, or multiples of one.
    static std::vector<double> ticks_of(double least, double most, bool is_log) {
        std::vector<double> round, ticks = {0};
        for (double ten = 1e-9; ten < 1e12; ten *= 10) round.insert(round.end(), {ten, 2 * ten, 5 * ten});
        const auto last = std::lower_bound(round.begin(), round.end(), most);
        if (is_log) return {std::upper_bound(round.begin(), round.end(), least) - 1, last + 1};
        const double step = *std::lower_bound(round.begin(), round.end(), most / 7);
        while (ticks.back() < most) ticks.push_back((double)ticks.size() * step);
        return ticks;
    }

    void draw_panel(double left, const plot_panel& panel) {
        double least = panel.points[0].slowest, most = 0;
        for (const plot_point& p : panel.points) {
            least = std::min(least, p.slowest);
            most = std::max({most, p.fastest, p.limit});
        }
        const std::vector<double> ticks = ticks_of(least, most, panel.is_log);
        const auto scale = [&](double value) { return panel.is_log ? std::log(value) : value; };
        const double bottom = scale(ticks[0]), tall = kTall / (scale(ticks.back()) - bottom);
        const auto y_of = [&](double value) { return kTop + kTall - tall * (scale(value) - bottom); };
        text("title", left, kTop - 18, panel.title);
        text("", left + kPanel / 2, kTop + kTall + 42, panel.below);
        for (double tick : ticks) {
            put("<path class=\"grid\" d=\"M%.1f %.1fh%d\"/>", left, y_of(tick), kPanel);
            number("tick", left - 8, y_of(tick) + 4, tick);
        }
        std::string line, limit;
        for (size_t i = 0; i < panel.points.size(); i++) {
            const plot_point& p = panel.points[i];
            const double x = left + kPanel * ((double)i + 0.5) / (double)panel.points.size();
            const std::string at = (i ? " " : "M") + std::to_string(x) + ",";
            line += at + std::to_string(y_of(p.median));
            if (p.limit > 0) limit += at + std::to_string(y_of(p.limit));
            put("<path d=\"M%.1f %.1fV%.1f\"/><circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>\n", x, y_of(p.slowest),
                y_of(p.fastest), x, y_of(p.median));
            number("", x, y_of(p.slowest) + 20, p.median);
            text("", x, kTop + kTall + 20, p.place);
        }
        out_ += "<path class=\"limit\" d=\"" + limit + "\"/>\n<path class=\"line\" d=\"" + line + "\"/>\n";
    }
};
