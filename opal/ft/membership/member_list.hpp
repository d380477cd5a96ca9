/// The members of a view, sorted by id: where each of them stands, and who stands where.
///
/// Two forms, which answer the same questions with the same answers. The full one is the paper's
/// linear array (Varma et al. 2006, section 3.1) with an index by id: 8 bytes for each id, constant
/// time. The localised one is what the paper's section 5 looks forward to: it keeps the runs of
/// consecutive ids only, so its size follows the gaps that deaths leave and not the number of
/// nodes: 8 bytes for each run, and a time with the logarithm of their number.
///
/// A value; const access from any thread.
#pragma once

#include "opal/ft/membership/types.hpp"

#include <cstddef>
#include <iterator>
#include <vector>

namespace ft::membership {

class MemberList {
  public:
    /// What find() says of an id that is none.
    static constexpr Position nowhere = 0xffffffffU;

    explicit MemberList(ViewForm form = ViewForm::full) : form_(form) {}
    /// `sorted` must be strictly ascending.
    explicit MemberList(const std::vector<NodeId> &sorted, ViewForm form = ViewForm::full);

    ViewForm form() const { return form_; }
    Position size() const { return size_; }
    bool empty() const { return size_ == 0; }
    /// The lowest and the highest id; the list must not be empty.
    NodeId front() const { return form_ == ViewForm::full ? ids_.front() : runs_.front().first; }
    NodeId back() const { return (*this)[size_ - 1]; }

    /// Who stands at `p`, which must be below size().
    NodeId operator[](Position p) const
    {
        return form_ == ViewForm::full ? ids_[p] : at_in_runs(p);
    }
    /// Where `id` stands; `nowhere` if it is no member.
    Position find(NodeId id) const
    {
        if (form_ == ViewForm::full) {
            return id < places_.size() ? places_[id] : nowhere;
        }
        return find_in_runs(id);
    }

    /// Adds `length` ids from `first` on, all above back().
    void append(NodeId first, Position length);
    /// The list without `gone` and with `come` (both ascending, `gone` members, `come` none but who
    /// is gone too).
    MemberList changed(const std::vector<NodeId> &gone, const std::vector<NodeId> &come) const;
    /// The same members in that form.
    MemberList as(ViewForm form) const;

    /// Calls f(first, length) for each run of consecutive ids, ascending.
    template <typename F>
    void for_each_run(F &&f) const
    {
        if (form_ == ViewForm::localised) {
            for (std::size_t r = 0; r < runs_.size(); ++r) {
                f(runs_[r].first, length_of(r));
            }
            return;
        }
        for (std::size_t i = 0, j = 0; i < ids_.size(); i = j) {
            for (j = i + 1; j < ids_.size() && ids_[j] == ids_[j - 1] + 1; ++j) {
            }
            f(ids_[i], static_cast<Position>(j - i));
        }
    }
    /// What the list holds outside of itself.
    std::size_t heap_bytes() const
    {
        return ids_.capacity() * sizeof(NodeId) + places_.capacity() * sizeof(Position) +
               runs_.capacity() * sizeof(Run);
    }
    /// The invariants of its form; visits everything.
    bool consistent() const;

    /// The same members, in whatever form.
    bool operator==(const MemberList &other) const;

    /// Forward, over the ids.
    class Iterator {
      public:
        using iterator_category = std::input_iterator_tag;
        using value_type = NodeId;
        using difference_type = std::ptrdiff_t;
        using pointer = const NodeId *;
        using reference = NodeId;

        Iterator(const MemberList &list, Position p) : list_(&list), p_(p) {}
        NodeId operator*() const
        {
            return list_->form_ == ViewForm::full
                       ? list_->ids_[p_]
                       : list_->runs_[run_].first + (p_ - list_->runs_[run_].before);
        }
        Iterator &operator++()
        {
            ++p_;
            run_ += run_ + 1 < list_->runs_.size() && list_->runs_[run_ + 1].before == p_;
            return *this;
        }
        bool operator==(const Iterator &other) const { return p_ == other.p_; }

      private:
        const MemberList *list_;
        Position p_;
        std::size_t run_ = 0;
    };
    Iterator begin() const { return {*this, 0}; }
    Iterator end() const { return {*this, size_}; }

  private:
    /// Consecutive ids from `first`; so many members are `before` it.
    struct Run {
        NodeId first;
        Position before;
    };

    NodeId at_in_runs(Position p) const;
    Position find_in_runs(NodeId id) const;
    Position length_of(std::size_t run) const
    {
        return (run + 1 < runs_.size() ? runs_[run + 1].before : size_) - runs_[run].before;
    }

    ViewForm form_;
    Position size_ = 0;
    std::vector<NodeId> ids_;      // full: the linear array
    std::vector<Position> places_; // full: by id
    std::vector<Run> runs_;        // localised
};

} // namespace ft::membership
