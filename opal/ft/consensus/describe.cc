#include "opal/ft/consensus/describe.hpp"

namespace ft::consensus {

std::string describe(const RankSet &set)
{
    if (set.empty()) {
        return "nobody";
    }
    std::string text;
    for (const auto &run : set.runs()) {
        text += text.empty() ? "" : ",";
        text += std::to_string(run.first);
        if (run.end > run.first + 1) {
            text += "-" + std::to_string(run.end - 1);
        }
    }
    return text;
}

std::string describe(const Message &m)
{
    std::string text = name(m.kind);
    const auto bits = [](std::uint64_t flags) {
        std::string all;
        for (unsigned bit = 0; bit < 64; ++bit) {
            if ((flags >> bit & 1U) != 0) {
                all += (all.empty() ? "" : ",") + std::to_string(bit);
            }
        }
        return all;
    };
    const auto number = [](const Number &n) {
        return std::to_string(n.round) + "." + std::to_string(n.root) + "." +
               std::to_string(n.attempt);
    };
    if (m.kind == Kind::exchange) {
        text += " " + std::to_string(static_cast<int>(m.stage)) + "/" + std::to_string(m.step);
    }
    if (m.number) {
        text += " of " + number(m.number);
    }
    if (m.seen) {
        text += " seen " + number(m.seen);
    }
    if (m.kind == Kind::answer) {
        text += m.stage == Stage::ballot ? " ballot" : " commit";
        text += m.ok ? " yes" : " no";
    }
    if (m.below && m.below->begin < m.below->end) {
        text += " below " + std::to_string(m.below->begin) + "-" + std::to_string(m.below->end - 1);
    }
    if (!m.suspects.empty()) {
        text += " suspects " + describe(m.suspects);
    }
    if (!m.unconfirmed.empty()) {
        text += " unconfirmed " + describe(m.unconfirmed);
    }
    if (m.flags != ~std::uint64_t{0}) {
        text += " flags not " + bits(~m.flags);
    }
    if (!m.acknowledged.empty()) {
        text += " acknowledged " + describe(m.acknowledged);
    }
    if (m.accepted) {
        text += " value " + describe(m.accepted->value.failed);
        if (m.accepted->value.flags != ~std::uint64_t{0}) {
            text += " flags not " + bits(~m.accepted->value.flags);
        }
        if (!m.accepted->value.acknowledged.empty()) {
            text += " acknowledged " + describe(m.accepted->value.acknowledged);
        }
        if (m.kind == Kind::answer) {
            text += " accepted in " + number(m.accepted->number);
        }
    }
    return text;
}

} // namespace ft::consensus
