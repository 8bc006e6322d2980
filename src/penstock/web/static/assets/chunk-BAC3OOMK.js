var a={zh:"zh-7e730a2982.json"};export{a};
