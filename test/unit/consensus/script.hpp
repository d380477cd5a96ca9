/// Golden scripts: a whole exchange between real engines, written so that it reads as prose.
///
/// A line without indentation says what happens; the indented lines after it are what the engines
/// do then. `play` runs the lines that say what happens and gives the script back with the indented
/// lines as they really come: the test compares the two.
///
///   group of 4, paper, strict            (or fast, loose)
///   0 calls                              (", knowing 1,3" ", doubting 3" ", flags not 2")
///   1 hears 0                            the oldest message on its way from 0 to 1 arrives
///   all hear all                         whatever is on its way arrives, oldest first, until quiet
///   2 dies                               it does nothing more; what it sent is still on its way
///   0 to 1 is lost                       the oldest message on its way from 0 to 1
///   1 suspects 0                         its own detector, without proof
///   1 is sure of 0                       and with proof
///   # comment
#pragma once

#include <string>

std::string play(const std::string &script);
