#include "opal/mca/btl/fault/settings.hpp"
#include "test/unit/cmocka.hpp"

#include <array>
#include <cmath>

using namespace ft::fault;

namespace {

/// \return the complaint's parameter, "" when there is none
std::string complaint_about(const Parameters &parameters)
{
    Settings settings;
    Complaint complaint;
    if (read_settings(parameters, settings, complaint)) {
        return "";
    }
    return complaint.wanted.empty() ? "no explanation" : complaint.parameter;
}

Settings read(const Parameters &parameters)
{
    Settings settings;
    Complaint complaint;
    if (!read_settings(parameters, settings, complaint)) {
        settings.seed = 0xdead;
    }
    return settings;
}

bool near(double a, double b)
{
    return std::abs(a - b) < 1e-12;
}

void nothing_given_is_no_fault(void **)
{
    bool good = false;
    {
        const Settings settings = read(Parameters{});
        good = !settings.any_fault() && settings.seed == 1 && settings.what == What::all &&
               settings.on_send && settings.on_receive && settings.has_rank(7) &&
               settings.has_btl("tcp") && !settings.has_btl("self") && !settings.has_btl("fault");
    }
    assert_true(good);
}

void everything_given_is_understood(void **)
{
    std::array<bool, 16> good{};
    {
        Parameters p;
        p.drop = "1.5";
        p.duplicate = "0";
        p.corrupt = "100";
        p.reorder = "1e-3";
        p.delay_us = "250";
        p.delay_percent = "20";
        p.kill_error = "7";
        p.kill_btl = "tcp:1";
        p.revive_after_ms = "30";
        p.only = "tcp,self";
        p.what = "acks";
        p.direction = "receive";
        p.seed = "18446744073709551615";
        p.ranks = "0,2-3";
        p.count = true;
        const Settings s = read(p);
        good = {near(s.drop, 0.015),
                near(s.duplicate, 0),
                near(s.corrupt, 1),
                near(s.reorder, 1e-5),
                near(s.delay, 0.2),
                s.delay_time == ft::base::Duration::from_us(250),
                s.kill_after == 7 && s.kill_reports,
                s.kill_btl == "tcp" && s.kill_instance == 1,
                s.revive_after == ft::base::Duration::from_ms(30),
                s.has_btl("tcp") && s.has_btl("self") && !s.has_btl("vader"),
                s.what == What::acks,
                !s.on_send && s.on_receive,
                s.seed == ~std::uint64_t{0},
                s.has_rank(0) && !s.has_rank(1) && s.has_rank(2) && s.has_rank(3) && !s.has_rank(4),
                s.count,
                s.any_fault()};
    }
    for (const bool each : good) {
        assert_true(each);
    }
}

void a_delay_strikes_all_unless_told_otherwise(void **)
{
    double delay = 0;
    {
        Parameters p;
        p.delay_us = "10";
        delay = read(p).delay;
    }
    assert_true(near(delay, 1));
}

struct Bad {
    std::string Parameters::*member;
    const char *value;
    const char *name;
};

void what_cannot_be_used_is_named(void **)
{
    const std::array bad{
        Bad{&Parameters::drop, "101", "drop"},
        Bad{&Parameters::drop, "-1", "drop"},
        Bad{&Parameters::drop, "nan", "drop"},
        Bad{&Parameters::drop, "inf", "drop"},
        Bad{&Parameters::drop, "5%", "drop"},
        Bad{&Parameters::drop, " 5", "drop"},
        Bad{&Parameters::drop, "abc", "drop"},
        Bad{&Parameters::duplicate, "100.01", "duplicate"},
        Bad{&Parameters::corrupt, "1,5", "corrupt"},
        Bad{&Parameters::reorder, "1000", "reorder"},
        Bad{&Parameters::delay_us, "-5", "delay_us"},
        Bad{&Parameters::delay_us, "1.5", "delay_us"},
        Bad{&Parameters::delay_us, "60000001", "delay_us"},
        Bad{&Parameters::delay_percent, "10", "delay_percent"},
        Bad{&Parameters::kill_after, "many", "kill_after"},
        Bad{&Parameters::kill_error, "1000000000001", "kill_error"},
        Bad{&Parameters::kill_btl, "tcp", "kill_btl"},
        Bad{&Parameters::revive_after_ms, "10", "revive_after_ms"},
        Bad{&Parameters::only, "tcp,,self", "only"},
        Bad{&Parameters::only, "fault", "only"},
        Bad{&Parameters::what, "Data", "what"},
        Bad{&Parameters::direction, "up", "direction"},
        Bad{&Parameters::seed, "0x10", "seed"},
        Bad{&Parameters::seed, "18446744073709551616", "seed"},
        Bad{&Parameters::ranks, "3-1", "ranks"},
        Bad{&Parameters::ranks, "a", "ranks"},
        Bad{&Parameters::ranks, "1,", "ranks"},
    };
    for (const Bad &each : bad) {
        bool named = false;
        {
            Parameters p;
            p.*each.member = each.value;
            named = complaint_about(p) == each.name;
        }
        if (!named) {
            fail_test("%s=%s was not refused by name", each.name, each.value);
        }
    }
}

void any_path_may_be_the_one_that_dies(void **)
{
    bool any = false;
    {
        Parameters p;
        p.kill_after = "3";
        p.kill_btl = "any";
        any = read(p).kills_any() && !read(Parameters{}).kills_any();
    }
    assert_true(any);
}

void parameters_that_contradict_are_refused(void **)
{
    std::array<bool, 3> good{};
    {
        Parameters both;
        both.kill_after = "1";
        both.kill_error = "1";
        good[0] = complaint_about(both) == "kill_error";
        Parameters no_number;
        no_number.kill_after = "1";
        no_number.kill_btl = "tcp:";
        good[1] = complaint_about(no_number) == "kill_btl";
        Parameters no_name;
        no_name.kill_after = "1";
        no_name.kill_btl = ":1";
        good[2] = complaint_about(no_name) == "kill_btl";
    }
    for (const bool each : good) {
        assert_true(each);
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(nothing_given_is_no_fault),
        cmocka_unit_test(everything_given_is_understood),
        cmocka_unit_test(a_delay_strikes_all_unless_told_otherwise),
        cmocka_unit_test(what_cannot_be_used_is_named),
        cmocka_unit_test(any_path_may_be_the_one_that_dies),
        cmocka_unit_test(parameters_that_contradict_are_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
