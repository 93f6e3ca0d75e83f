#include "quantize/calibration_data.h"

namespace spillway {

// Written for this project; Apache-2.0 like the rest. Paragraphs alternate
// between what somebody asks and what somebody answers, over prose, lists, code,
// numbers and a few other languages.
std::string_view DefaultCalibrationText() {
  return R"text(Could you explain how a canal lock works? I saw one on holiday and did not understand why the water does not simply run away.

A lock is a chamber with a gate at each end. A boat that wants to go up enters at the bottom while the upper gate is shut. Then the lower gate closes behind it, and a small valve lets water flow in from above. The boat rises with the water. When the level inside equals the level outside, the upper gate opens easily and the boat leaves. Only one chamber of water is spent for each passage, which is why a canal can climb a hill without losing its whole river.

Write a short function in Python that returns the sum of all even numbers in a list, and show me how to call it.

Here is one way to do it:

def sum_even(numbers):
    total = 0
    for n in numbers:
        if n % 2 == 0:
            total += n
    return total

print(sum_even([1, 2, 3, 4, 10]))  # 16

The percent sign gives the remainder of a division, so `n % 2 == 0` is true for even numbers only.

What should I pack for three days of walking in the mountains in late September?

Take layers rather than one thick coat. A light rain jacket, a warm pullover, two shirts that dry quickly, and a hat are enough for most days. Bring these small things as well:
1. a map and a compass, even if your phone has both;
2. a torch with fresh batteries;
3. two litres of water and something salty to eat;
4. plasters, a whistle, and a thin rope.
Tell somebody where you are going, and when you expect to be back.

The harbour was quiet when Marta came down the steps. Two gulls stood on the wall, and the ferry had not yet put out its lights. She counted the coins in her pocket again: forty-one, not enough for the ticket, too much to give up. "You are early," said the man in the booth. "I am late," she answered, "by eleven years."

He looked at her for a long moment and then pushed a strip of paper through the gap. "Then one more morning will not matter," he said. "Sit on the left side. You will see the lighthouse first." The engine started somewhere below the boards, and the whole building began to hum.

How many seconds are there in a leap year, and how did you work it out?

A leap year has 366 days. Each day has 24 hours, each hour 60 minutes, and each minute 60 seconds. So 366 x 24 = 8784 hours, 8784 x 60 = 527,040 minutes, and 527,040 x 60 = 31,622,400 seconds. A common year has 31,536,000 seconds, which is 86,400 fewer: exactly one day.

Summarise in two sentences why bridges are often built with arches.

An arch turns the weight above it into a push along its curve, and stone is very strong when it is pushed but weak when it is pulled. The push ends in the ground on both sides, so the arch can carry a road over a wide gap with no beam that would bend in the middle.

In the year 1851 the survey of the northern coast was finished after nineteen seasons. The party had measured 312 angles from 47 hills, and the greatest error that was later found in any of them was less than the width of a finger seen from across a street. The instruments were carried by hand. The chief of the survey, a patient man with poor eyesight, wrote that the weather had been his only colleague that never agreed with him.

The results were published in six volumes. Two of them hold nothing but tables, and the last has the drawings of the hills themselves, made so that a stranger could find each mark again. Modern receivers have confirmed the positions within a few metres. Today the marks are protected, although one of them now stands in the car park of a supermarket.

Translate into French and German: The train leaves at seven, so we should buy the bread tonight.

French: Le train part à sept heures, alors nous devrions acheter le pain ce soir. German: Der Zug fährt um sieben ab, deshalb sollten wir das Brot heute Abend kaufen. Spanish, in case it helps: El tren sale a las siete, así que deberíamos comprar el pan esta noche.

Explain what a cache is to somebody who has never used a computer.

Imagine a cook in a large kitchen. The store room is down the stairs and holds everything, but each trip takes two minutes. So the cook keeps salt, oil, onions and the pan that is used most on the table beside the stove. That table is the cache: small, close, and filled with what was needed lately. When something is missing from it, the cook goes down, brings it up, and puts away whatever has not been touched for the longest time.

{"name": "valve-7", "open": false, "pressure": 2.45, "history": [2.41, 2.44, 2.45, null], "unit": "bar"}

This record describes a valve called valve-7. It is closed, its present pressure is 2.45 bar, and the last four readings rose slowly, with one reading missing at the end. A value of null usually means that the sensor did not answer in time.

Give me a recipe for a simple lentil soup for four people.

Warm three spoons of oil in a pot and fry a chopped onion, two carrots and a stick of celery until they are soft, about eight minutes. Add a clove of garlic, half a teaspoon of cumin and 250 g of red lentils. Pour in one litre of stock, bring it to the boil, and let it simmer for twenty minutes. Season with salt, pepper and the juice of half a lemon. It tastes better on the second day.

int main(void) {
  unsigned long long a = 0, b = 1;
  for (int i = 0; i < 50; i++) {
    unsigned long long next = a + b;
    a = b;
    b = next;
  }
  printf("%llu\n", a);
  return 0;
}

The program prints the fiftieth Fibonacci number, 12586269025. Each turn of the loop keeps only the last two numbers, so it needs no array, and the 64-bit type is wide enough up to the ninety-third number.

Why is the sky blue in the daytime and red in the evening?

Sunlight holds all colours. The air scatters short waves, which look blue, far more than long ones, which look red. At noon the scattered blue reaches us from every side. In the evening the light has crossed much more air before it arrives; most of the blue has been scattered away on the road, and what is left is orange and red.

The committee met on Tuesday, 14 March, at 18:30 in room B-204. Present: Ms Okafor (chair), Mr Lindqvist, Dr. Haruki Sato, and eleven members. The minutes of the last meeting were approved with two corrections. The treasurer reported a balance of 4,310.75 euros, against 3,992.10 euros a year before.

Item 3, the roof: three offers were received. The cheapest (18,400) does not include scaffolding; the second (21,950) does. After a discussion the meeting voted 9 to 4, with one abstention, for the second offer, on condition that the work is finished before 1 October. The chair thanked everybody and closed the meeting at 20:05.

What is the difference between weather and climate?

Weather is what happens outside today: rain at noon, wind from the west, nineteen degrees. Climate is what you may expect after watching the weather in one place for many years, for example thirty. A single cold week says as little about the climate as a single lost match says about a season.

Please write a polite message to my neighbour about the music late at night.

Dear Jonas, I hope that you are well. I wanted to mention that your music can be heard quite clearly in my bedroom after eleven, and I have to get up at half past five on working days. Would it be possible to turn it down a little at that time? I am happy to talk about it whenever it suits you, and I like the records, only not at midnight. Best wishes, Ewa

A good sorting method for a nearly sorted list is insertion sort. It walks from left to right and moves each item back until the item before it is not larger. When only a few items are out of place, each of them moves a short way and the cost is close to the length of the list; in the worst case, a list in reverse order, the cost grows with the square of the length.

Merge sort behaves differently: it always needs about n log n steps, because it halves the list again and again and joins the halves. Many libraries combine both, using insertion sort for short runs and merging the runs afterwards. Which one wins depends on the data, so measure before you choose.

Tell me a short story about a lighthouse keeper and a whale.

Old Bram kept the light on the outer rock. Every autumn a whale passed so close that he could hear it breathe, and every autumn he turned the lamp a little lower so as not to trouble it. One night the lamp broke in a storm, and a ship came straight for the rock. Bram rang the bell, but the wind swallowed the sound. Then he heard the breath, once, twice, and the ship's crew heard it too. They thought it was surf, and turned away just in time.

La lumière baissait sur la place, et les marchands rangeaient leurs caisses. Un enfant demanda combien coûtaient les dernières cerises; on les lui donna. Am anderen Ende der Straße begann eine Kapelle zu spielen, erst zögernd, dann mit ganzer Kraft. Nadie se marchó hasta que terminó la música.

List three rules for naming variables in a program, with a reason for each.

First, say what the value means, not what type it has: `retry_count` tells more than `int1`. Second, make the length fit the scope: a loop index may be `i`, but a setting that the whole program reads deserves a full name. Third, use one word for one idea; if the same thing is called user, client and account in three files, a reader will look for three things.
)text";
}

}  // namespace spillway
