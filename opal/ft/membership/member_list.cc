#include "opal/ft/membership/member_list.hpp"

#include "opal/ft/base/assert.hpp"

#include <algorithm>

namespace ft::membership {

MemberList::MemberList(const std::vector<NodeId> &sorted, ViewForm form) : form_(form)
{
    for (const NodeId id : sorted) {
        append(id, 1);
    }
}

NodeId MemberList::at_in_runs(Position p) const
{
    const auto next =
        std::upper_bound(runs_.begin(), runs_.end(), p,
                         [](Position position, const Run &r) { return position < r.before; });
    return std::prev(next)->first + (p - std::prev(next)->before);
}

Position MemberList::find_in_runs(NodeId id) const
{
    const auto next = std::upper_bound(runs_.begin(), runs_.end(), id,
                                       [](NodeId x, const Run &r) { return x < r.first; });
    if (next == runs_.begin()) {
        return nowhere;
    }
    const auto run = static_cast<std::size_t>(next - runs_.begin()) - 1;
    const NodeId offset = id - runs_[run].first;
    return offset < length_of(run) ? runs_[run].before + offset : nowhere;
}

void MemberList::append(NodeId first, Position length)
{
    FT_ASSERT(length > 0 && (empty() || first > back()));
    if (form_ == ViewForm::localised) {
        if (runs_.empty() || first != back() + 1) {
            runs_.push_back({first, size_});
        }
        size_ += length;
        return;
    }
    places_.resize(first + length, nowhere);
    for (Position i = 0; i < length; ++i) {
        places_[first + i] = size_++;
        ids_.push_back(first + i);
    }
}

MemberList MemberList::changed(const std::vector<NodeId> &gone,
                               const std::vector<NodeId> &come) const
{
    MemberList next(form_);
    if (form_ == ViewForm::full) {
        next.ids_.reserve(size_ - gone.size() + come.size());
        next.places_.reserve(
            std::max<std::size_t>(places_.size(), come.empty() ? 0 : come.back() + 1));
    } else {
        next.runs_.reserve(runs_.size() + gone.size() + come.size());
    }
    auto out = gone.begin();
    auto in = come.begin();
    const auto piece = [&](NodeId first, NodeId end) {
        for (; in != come.end() && *in < first; ++in) {
            next.append(*in, 1);
        }
        if (first < end) {
            next.append(first, end - first);
        }
    };
    for_each_run([&](NodeId first, Position length) {
        const NodeId end = first + length;
        for (; out != gone.end() && *out < end; ++out) {
            piece(first, *out);
            first = *out + 1;
        }
        piece(first, end);
    });
    piece(no_node, no_node);
    if (form_ == ViewForm::localised) {
        next.runs_.shrink_to_fit(); // what is kept, in every member, is this
    }
    return next;
}

MemberList MemberList::as(ViewForm form) const
{
    if (form == form_) {
        return *this;
    }
    MemberList other(form);
    if (form == ViewForm::full && !empty()) {
        other.ids_.reserve(size_);
        other.places_.reserve(back() + 1);
    }
    for_each_run([&](NodeId first, Position length) { other.append(first, length); });
    return other;
}

bool MemberList::consistent() const
{
    if (form_ == ViewForm::full) {
        Position placed = 0;
        for (const Position p : places_) {
            placed += p != nowhere;
        }
        if (!runs_.empty() || ids_.size() != size_ || placed != size_) {
            return false;
        }
        for (Position p = 0; p < size_; ++p) {
            if ((p != 0 && ids_[p] <= ids_[p - 1]) || places_[ids_[p]] != p) {
                return false;
            }
        }
        return true;
    }
    for (std::size_t r = 0; r < runs_.size(); ++r) {
        // Runs that touch would be one.
        const bool fits = r == 0 ? runs_[0].before == 0
                                 : runs_[r].before > runs_[r - 1].before &&
                                       runs_[r].first > runs_[r - 1].first + length_of(r - 1);
        if (!fits || runs_[r].before >= size_) {
            return false;
        }
    }
    return ids_.empty() && places_.empty() && runs_.empty() == (size_ == 0);
}

bool MemberList::operator==(const MemberList &other) const
{
    if (size_ != other.size_) {
        return false;
    }
    if (form_ == ViewForm::full && other.form_ == ViewForm::full) {
        return ids_ == other.ids_;
    }
    // The runs of one side must be in the other as runs, unbroken; with as many members that is
    // all.
    bool same = true;
    const MemberList &runs = form_ == ViewForm::localised ? *this : other;
    const MemberList &list = form_ == ViewForm::localised ? other : *this;
    runs.for_each_run([&](NodeId first, Position length) {
        const Position from = list.find(first);
        const Position to = list.find(first + (length - 1));
        same &= from != nowhere && to != nowhere && to - from == length - 1;
    });
    return same;
}

} // namespace ft::membership
