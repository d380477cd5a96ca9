/// \file
/// Doubly linked lists whose links live in their elements: nothing is allocated, and an element
/// leaves in constant time.
#pragma once
#include <cstddef>

namespace ft::dr {

/// What an element derives from, once for each list it can be in; `Tag` tells them apart.
template <class Tag>
struct Hook {
    Hook *before = nullptr;
    Hook *after = nullptr;
    bool linked() const noexcept { return after != nullptr; }
};

/// Not synchronised. Elements are not owned.
template <class T, class Tag>
class List {
    using Link = Hook<Tag>;

  public:
    List() noexcept { head_.before = head_.after = &head_; }
    List(const List &) = delete;
    List &operator=(const List &) = delete;

    bool empty() const noexcept { return head_.after == &head_; }
    T *front() noexcept { return element(head_.after); }
    T *next(T *item) noexcept { return element(static_cast<Link *>(item)->after); }
    void push_back(T *item) noexcept { insert(item, head_.before, &head_); }
    T *pop_front() noexcept
    {
        T *item = front();
        if (item != nullptr) {
            remove(item);
        }
        return item;
    }
    static void remove(T *item) noexcept
    {
        Link *link = item;
        link->before->after = link->after;
        link->after->before = link->before;
        link->before = link->after = nullptr;
    }

  private:
    T *element(Link *link) noexcept { return link == &head_ ? nullptr : static_cast<T *>(link); }
    static void insert(T *item, Link *before, Link *after) noexcept
    {
        Link *link = item;
        link->before = before;
        link->after = after;
        before->after = link;
        after->before = link;
    }
    Link head_;
};

} // namespace ft::dr
